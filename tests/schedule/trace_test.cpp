// What a trace says by itself, and that it agrees with the simulator.
#include "schedule/trace.h"

#include <gtest/gtest.h>

#include "tests/schedule/streams.h"
#include "tests/schedule/trace_support.h"

namespace penstock::schedule {
namespace {

TEST(Trace, SummaryOfRanksByHand) {
  const TraceSummary summary = summarize(two_ranks());
  EXPECT_EQ(summary.start, 0.0);
  EXPECT_EQ(summary.makespan, 8.0);
  EXPECT_EQ(summary.end, 9.0);
  ASSERT_EQ(summary.ranks.size(), 2U);
  EXPECT_EQ(summary.ranks[0].busy, 3.0);
  EXPECT_EQ(summary.ranks[0].idle, 5.0);
  EXPECT_EQ(summary.ranks[1].busy, 4.0);
  EXPECT_EQ(summary.ranks[1].idle, 4.0);
  EXPECT_EQ(summary.ranks[0].peak_activations, 1);
  EXPECT_DOUBLE_EQ(summary.bubble_ratio(), 9.0 / 7.0);
}

TEST(Trace, TimesCountFromAnyZero) {
  Trace later = two_ranks();
  for (TraceRank& rank : later.ranks) {
    for (TraceSpan& span : rank.spans) {
      span.start += 100.0;
      span.end += 100.0;
    }
  }
  EXPECT_EQ(summarize(later).start, 100.0);
  EXPECT_EQ(summarize(later).makespan, 8.0);
  EXPECT_EQ(summarize(later).ranks[1].idle, 4.0);
}

TEST(Trace, OverlappingPassesAreBusyOnce) {
  Trace trace{"overlap", {{"rank 0", 0, {}}}};
  trace.ranks[0].spans = {{of(Opcode::kForwardPass, 1, 1), StageId{1}, 0, 0.0, 1.0},
                          {of(Opcode::kBackwardPass, 0, 0), StageId{0}, 0, 0.0, 2.0},
                          {of(Opcode::kForwardPass, 2, 0), StageId{0}, 1, 3.0, 4.0}};
  EXPECT_EQ(summarize(trace).ranks[0].busy, 3.0);
  EXPECT_EQ(summarize(trace).ranks[0].idle, 1.0);
}

TEST(Trace, AnEmptyOneHasNoTime) {
  const TraceSummary none = summarize(Trace{"none", {}});
  EXPECT_EQ(none.makespan, 0.0);
  EXPECT_EQ(none.bubble_ratio(), 0.0);
  const TraceSummary idle = summarize(Trace{"idle", {{"rank 0", 0, {}}}});
  ASSERT_EQ(idle.ranks.size(), 1U);
  EXPECT_EQ(idle.ranks[0].idle, 0.0);
}

TEST(Trace, PairsEachSendWithItsRecv) {
  const Trace trace = two_ranks();
  const std::vector<Transfer> found = transfers(trace);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(trace.ranks[found[0].to_rank].spans[found[0].to_span].instruction.opcode,
            Opcode::kRecvActivation);
  EXPECT_EQ(found[1].from_rank, 1U);
  EXPECT_EQ(found[1].from_span, 3U);
  EXPECT_EQ(found[1].to_rank, 0U);
  EXPECT_EQ(found[1].to_span, 2U);
}

TEST(Trace, KeepsReplicasApart) {
  Trace trace = two_ranks();
  for (TraceRank rank : two_ranks().ranks) {
    rank.replica = 1;
    trace.ranks.push_back(rank);
  }
  const std::vector<Transfer> found = transfers(trace);
  ASSERT_EQ(found.size(), 4U);
  for (const Transfer& transfer : found) {
    EXPECT_EQ(trace.ranks[transfer.from_rank].replica, trace.ranks[transfer.to_rank].replica);
  }
  EXPECT_EQ(only_replica(trace, 0), two_ranks());
  EXPECT_EQ(only_replica(trace, 1).ranks.size(), 2U);
  EXPECT_EQ(error_of([&] { only_replica(trace, 2); }),
            "[schedule::trace] by hand has no rank of replica 2");
}

TEST(Trace, LeavesOutMessagesWithoutTheOtherEnd) {
  Trace trace = two_ranks();
  trace.ranks[0].spans.erase(trace.ranks[0].spans.begin() + 2);  // the RecvGrad
  EXPECT_EQ(transfers(trace).size(), 1U);
  trace.ranks[0].spans[1].stage = StageId{};
  EXPECT_EQ(transfers(trace).size(), 0U);
}

TEST(Trace, TellsWhatEachStageCost) {
  Trace trace = two_ranks();
  trace.ranks[0].spans.push_back({of(Opcode::kForwardPass, 1), StageId{0}, 3, 20.0, 20.5});
  const Costs costs = measured_costs(trace);
  ASSERT_EQ(costs.stages.size(), 2U);
  EXPECT_EQ(costs.stages[0].forward, 0.75);        // the mean of 1 and 0.5
  EXPECT_EQ(costs.stages[0].backward_input, 1.0);  // half of a backward that took 2
  EXPECT_EQ(costs.stages[0].backward_weight, 1.0);
  EXPECT_EQ(costs.stages[1].forward, 2.0);
  EXPECT_EQ(costs.stages[1].backward_input, 1.0);
  EXPECT_EQ(costs.latency, 0.0);

  trace.ranks.erase(trace.ranks.begin());
  EXPECT_NE(error_of([&] { measured_costs(trace); }).find("has no forward of stage 0"),
            std::string::npos);
  EXPECT_THROW(measured_costs(Trace{"none", {}}), ScheduleError);
}

// What was simulated from measured costs costs the same when it is measured.
TEST(Trace, CostsOfASimulationAreThoseThatItWasMadeFrom) {
  Costs costs = uniform_costs(4, 1);
  costs.stages[1].forward = 0.25;
  costs.stages[2].backward_weight = 1.5;
  const ScheduleArgs args{.ranks = 2, .micro_batches = 6, .chunks = 2};
  const Costs measured = measured_costs(simulated("zbv", zbv_rows(args), costs).trace);
  ASSERT_EQ(measured.stages.size(), 4U);
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_NEAR(measured.stages[s].forward, costs.stages[s].forward, 1e-9);
    EXPECT_NEAR(measured.stages[s].backward_input, costs.stages[s].backward_input, 1e-9);
    EXPECT_NEAR(measured.stages[s].backward_weight, costs.stages[s].backward_weight, 1e-9);
  }
}

void expect_agrees(const Simulated& run) {
  const TraceSummary summary = summarize(run.trace);
  EXPECT_DOUBLE_EQ(summary.makespan, run.timeline.makespan);
  EXPECT_NEAR(summary.bubble_ratio(), run.timeline.bubble_ratio(), 1e-12);
  std::int64_t messages = 0;
  for (std::size_t r = 0; r < run.pipe.size(); ++r) {
    EXPECT_NEAR(summary.ranks[r].busy, run.timeline.ranks[r].busy, 1e-9);
    EXPECT_NEAR(summary.ranks[r].idle, run.timeline.ranks[r].idle, 1e-9);
    EXPECT_EQ(summary.ranks[r].peak_activations, run.timeline.ranks[r].peak_activations);
    messages += run.timeline.ranks[r].messages;
  }
  const std::vector<Transfer> found = transfers(run.trace);
  EXPECT_EQ(static_cast<std::int64_t>(found.size()), messages);
  for (const Transfer& transfer : found) {
    const TraceSpan& send = run.trace.ranks[transfer.from_rank].spans[transfer.from_span];
    const TraceSpan& recv = run.trace.ranks[transfer.to_rank].spans[transfer.to_span];
    EXPECT_LE(send.start, recv.end);
    EXPECT_EQ(send.instruction.micro_batch, recv.instruction.micro_batch);
    EXPECT_EQ(std::abs(send.stage.value - recv.stage.value), 1);
  }
}

TEST(Trace, AgreesWithTheSimulator) {
  const ScheduleArgs args{.ranks = 4, .micro_batches = 10, .chunks = 2};
  Costs costs = uniform_costs(8, 2);
  costs.latency = 0.25;
  costs.optimizer_step = 2.0;
  costs.stages[3].forward = 0.9;
  expect_agrees(simulated("interleaved_1f1b", interleaved_1f1b_rows(args), costs));
  expect_agrees(simulated("zbv", zbv_rows(args), costs));
  expect_agrees(simulated("forward_only", forward_only_rows(args), costs));
  costs.overlap = true;
  const Simulated overlapped = simulated("dualpipev", dualpipev_rows(args), costs);
  EXPECT_GT(overlapped.timeline.makespan, 0.0);
  expect_agrees(overlapped);
}

TEST(Trace, BelongsToItsStreams) {
  const ScheduleArgs args{.ranks = 2, .micro_batches = 2, .chunks = 1};
  const Simulated run = simulated("1f1b", one_f_one_b_rows(args), uniform_costs(2, 1));
  EXPECT_NE(error_of([&] {
              make_trace("one rank", run.timeline, std::span(run.pipe).first(1));
            }).find("the timeline has 2 ranks; expected those of 1 streams"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::schedule
