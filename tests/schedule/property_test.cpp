// What must hold of every schedule at every size: streams that are proven, peaks that do not depend
// on time, makespans as published.
#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

using Pipe = std::vector<std::unique_ptr<Schedule>>;

// The sizes of one pipe; empty when the schedule refuses them.
Pipe try_make(const ScheduleInfo& info, int ranks, int chunks, int micro_batches) {
  try {
    return make_pipe(info.name, {.ranks = ranks, .micro_batches = micro_batches, .chunks = chunks});
  } catch (const ScheduleError& error) {
    const std::string text = error.what();
    // What is refused is refused by the names of config keys.
    EXPECT_TRUE(text.find("pipeline.") != std::string::npos ||
                text.find("gradient_accumulation_steps") != std::string::npos)
        << text;
    return {};
  }
}

// The largest number of micro batches between their first and last use of each chunk, in the order
// of the stream: what liveness alone would give.
std::vector<int> live_in_order(const Schedule& schedule, bool trains) {
  std::vector<int> alive(static_cast<std::size_t>(schedule.num_chunks())), peak = alive;
  for (const Instruction& i : flat(schedule)) {
    const auto chunk = static_cast<std::size_t>(std::max(0, i.chunk.value));
    if (i.opcode == Opcode::kForwardPass) peak[chunk] = std::max(peak[chunk], ++alive[chunk]);
    const bool ends = trains
                          ? i.opcode == Opcode::kBackwardPass || i.opcode == Opcode::kBackwardWeight
                          : i.opcode == Opcode::kForwardPass;
    if (ends) --alive[chunk];
  }
  return peak;
}

void check_buffers(const Pipe& pipe, const Timeline& timeline, bool trains) {
  for (std::size_t rank = 0; rank < pipe.size(); ++rank) {
    const RankTimeline& of_rank = timeline.ranks[rank];
    EXPECT_EQ(of_rank.peak_activations_of_chunk, live_in_order(*pipe[rank], trains));
    for (int c = 0; c < pipe[rank]->num_chunks(); ++c) {
      const auto chunk = static_cast<std::size_t>(c);
      const int buffers = pipe[rank]->num_pipe_buffers(ChunkId{c});
      // A buffer more than activations is one whose gradient is still being sent.
      EXPECT_LE(of_rank.peak_buffers_of_chunk[chunk], buffers) << "rank " << rank << " chunk " << c;
      EXPECT_LE(of_rank.peak_activations_of_chunk[chunk], buffers);
    }
  }
}

// The channel orders are equal: what verify proves, seen from the text of the streams alone.
void check_channels(const Pipe& pipe) {
  using Key = std::tuple<int, int, bool>;
  std::map<Key, std::vector<std::pair<int, int>>> sent, received;
  for (const auto& schedule : pipe) {
    for (const Instruction& i : flat(*schedule)) {
      if (lane(i.opcode) != Lane::kComm || !has(operands(i.opcode), Operands::kMicroBatch))
        continue;
      const int stage = schedule->stage_of(i.chunk).value;
      const int self = schedule->rank().value;
      const auto rank_of = [&](int s) { return schedule->rank_of(StageId{s}).value; };
      const int m = i.micro_batch.value;
      if (i.opcode == Opcode::kSendActivation) {
        sent[{self, rank_of(stage + 1), true}].emplace_back(stage, m);
      } else if (i.opcode == Opcode::kRecvActivation) {
        received[{rank_of(stage - 1), self, true}].emplace_back(stage - 1, m);
      } else if (i.opcode == Opcode::kSendGrad) {
        sent[{self, rank_of(stage - 1), false}].emplace_back(stage - 1, m);
      } else {
        received[{rank_of(stage + 1), self, false}].emplace_back(stage, m);
      }
    }
  }
  EXPECT_EQ(sent, received);
}

class Schedules : public testing::TestWithParam<std::string> {};

TEST_P(Schedules, AreProvenAtEverySize) {
  const ScheduleInfo& info = schedule_info(GetParam());
  int made = 0;
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const int chunks : {1, 2, 3, 4}) {
      for (int m = 1; m <= 3 * ranks + 1; ++m) {
        const Pipe pipe = try_make(info, ranks, chunks, m);
        if (pipe.empty()) continue;
        SCOPED_TRACE("P " + std::to_string(ranks) + ", v " + std::to_string(chunks) + ", M " +
                     std::to_string(m));
        ++made;
        const Report report = verify(pipe, info.trains);
        ASSERT_TRUE(report.ok()) << report.to_text();
        check_channels(pipe);
        check_buffers(pipe, simulate(pipe, uniform_costs(ranks * chunks, chunks)), info.trains);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(made, 4);  // data_parallel, whose only size is M
}

// Memory that does not depend on M, but for those that are known to hold all micro batches.
TEST_P(Schedules, NeedNoMoreBuffersForMoreMicroBatches) {
  const ScheduleInfo& info = schedule_info(GetParam());
  if (GetParam().starts_with("gpipe") || GetParam() == "looped_bfs") return;
  for (const int chunks : {1, 2, 3}) {
    const Pipe few = try_make(info, 4, chunks, 32), many = try_make(info, 4, chunks, 128);
    for (std::size_t rank = 0; rank < few.size(); ++rank) {
      for (int c = 0; c < few[rank]->num_chunks(); ++c) {
        EXPECT_EQ(few[rank]->num_pipe_buffers(ChunkId{c}), many[rank]->num_pipe_buffers(ChunkId{c}))
            << "chunks " << chunks << ", rank " << rank << ", chunk " << c;
      }
    }
  }
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : registered_schedules()) names.emplace_back(info.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Schedules, testing::ValuesIn(all_names()), [](const auto& test) {
  std::string name = test.param;
  return name[0] >= '0' && name[0] <= '9' ? "s" + name : name;
});

// --- published figures

class Golden : public testing::Test {
 protected:
  // Rows of the golden file but its first, which says how they were made.
  static std::vector<nlohmann::json> rows() {
    std::ifstream in(PENSTOCK_GOLDEN_DIR "/table_schedules.jsonl");
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
    rows.erase(rows.begin());
    return rows;
  }
};

TEST_F(Golden, MakespansAndPeaksAreThePublishedOnes) {
  int checked = 0;
  for (const nlohmann::json& row : rows()) {
    const int ranks = row["ranks"], chunks = row["chunks"], m = row["micro_batches"];
    SCOPED_TRACE(row["schedule"].get<std::string>() + " P " + std::to_string(ranks) + ", v " +
                 std::to_string(chunks) + ", M " + std::to_string(m));
    const Pipe pipe = make_pipe(row["schedule"].get<std::string>(),
                                {.ranks = ranks, .micro_batches = m, .chunks = chunks});
    Costs equal = uniform_costs(ranks * chunks, chunks);
    const Timeline timeline = simulate(pipe, equal);
    // A stage costs 1/chunks, which for 3 is not a binary fraction: hence 1e-9 and not 0.
    EXPECT_NEAR(timeline.makespan, row["makespan_F1I1W1"].get<double>(), 1e-9);
    EXPECT_NEAR(simulate(pipe, uniform_costs(ranks * chunks, chunks, 2, 3, 1)).makespan,
                row["makespan_F2I3W1"].get<double>(), 1e-9);
    if (row.contains("makespan_overlapped_F1I1W1")) {
      equal.overlap = true;
      EXPECT_NEAR(simulate(pipe, equal).makespan, row["makespan_overlapped_F1I1W1"].get<double>(),
                  1e-9);
    }
    std::vector<int> peaks;
    for (const RankTimeline& rank : timeline.ranks) peaks.push_back(rank.peak_activations);
    EXPECT_EQ(peaks, row["peak_activations"].get<std::vector<int>>());
    ++checked;
    if (HasFailure()) return;
  }
  EXPECT_EQ(checked, 336);
}

// Idle of the whole pipe over its busy time, in percent.
double idle_percent(const char* name, int ranks, int m, int chunks, double f, double i, double w,
                    double latency) {
  Costs costs = uniform_costs(ranks * chunks, chunks, f, i, w);
  costs.latency = latency;
  const Pipe pipe = make_pipe(name, {.ranks = ranks, .micro_batches = m, .chunks = chunks});
  return 100.0 * simulate(pipe, costs).bubble_ratio();
}

// reference: the zero-bubble authors' table of idle times, checked by an independent simulator.
TEST(Published, IdleTimesAtEqualCosts) {
  struct Row {
    const char* name;
    int chunks;
    double p2m8, p4m16, p8m32;
  };
  for (const Row& row :
       {Row{"1f1b", 1, 12.5, 18.8, 21.9}, Row{"interleaved_1f1b", 2, 6.2, 9.4, 10.9},
        Row{"interleaved_1f1b", 4, 3.1, 4.7, 5.5}, Row{"zb1p", 1, 4.2, 6.2, 7.3},
        Row{"zbv", 2, 2.1, 3.1, 3.6}}) {
    EXPECT_NEAR(idle_percent(row.name, 2, 8, row.chunks, 1, 1, 1, 0), row.p2m8, 0.0501) << row.name;
    EXPECT_NEAR(idle_percent(row.name, 4, 16, row.chunks, 1, 1, 1, 0), row.p4m16, 0.0501)
        << row.name;
    EXPECT_NEAR(idle_percent(row.name, 8, 32, row.chunks, 1, 1, 1, 0), row.p8m32, 0.0501)
        << row.name;
  }
}

TEST(Published, OneForwardOneBackwardWithAHopCost) {
  EXPECT_NEAR(idle_percent("1f1b", 8, 32, 1, 1, 1, 1, 0.1), 29.0, 0.0501);
}

}  // namespace
}  // namespace penstock::schedule
