// The verifier: by mutation of good streams, against an executor that knows nothing of it; and its
// reports, against text.
#include "schedule/verify.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "schedule/lowering.h"
#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "tests/schedule/blind_executor.h"
#include "tests/schedule/random_tables.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

using Pipe = std::vector<std::unique_ptr<Schedule>>;

// A stream given as it is, with the sizes and buffers of another one.
class Given final : public Schedule {
 public:
  Given(const Schedule& like, std::vector<Step> steps)
      : Schedule(like.name(), {.ranks = like.num_ranks(),
                               .micro_batches = like.num_micro_batches(),
                               .rank = like.rank(),
                               .stage_map = like.stage_map()}),
        steps_(std::move(steps)) {
    for (int c = 0; c < like.num_chunks(); ++c) {
      buffers_.push_back(like.num_pipe_buffers(ChunkId{c}));
    }
  }
  std::int64_t num_steps() const override { return static_cast<std::int64_t>(steps_.size()); }

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override {
    const Step& instructions = steps_[static_cast<std::size_t>(step)];
    out.insert(out.end(), instructions.begin(), instructions.end());
  }
  int do_num_pipe_buffers(ChunkId chunk) const override {
    return buffers_[static_cast<std::size_t>(chunk.value)];
  }

  std::vector<Step> steps_;
  std::vector<int> buffers_;
};

// Each instruction a step, which is as good as any grouping.
Pipe given(const Pipe& like, const std::vector<Flat>& streams) {
  Pipe pipe;
  for (std::size_t rank = 0; rank < streams.size(); ++rank) {
    std::vector<Step> steps;
    for (const Instruction& instruction : streams[rank]) steps.push_back({instruction});
    pipe.push_back(std::make_unique<Given>(*like[rank], std::move(steps)));
  }
  return pipe;
}

class Damage {
 public:
  Damage(const Pipe& pipe, std::vector<Flat> streams, std::mt19937_64& random)
      : pipe_(pipe), streams_(std::move(streams)), random_(random) {}

  // Damages one stream; false when there was nothing to damage in that way.
  bool apply(int kind) {
    const std::size_t rank = below(streams_.size());
    Flat& stream = streams_[rank];
    const std::size_t at = below(stream.size());
    switch (kind) {
      case 0:
        dropped_ = stream[at].opcode;
        stream.erase(stream.begin() + static_cast<std::ptrdiff_t>(at));
        return true;
      case 1:
        stream.insert(stream.begin() + static_cast<std::ptrdiff_t>(below(stream.size() + 1)),
                      Instruction(stream[at]));
        return true;
      case 2: {
        const std::size_t other = below(stream.size());
        if (stream[at] == stream[other]) return false;
        std::swap(stream[at], stream[other]);
        return true;
      }
      case 3:
        return retarget(stream[at], *pipe_[rank]);
      case 4:
        return rebuffer(stream[at], *pipe_[rank]);
      default:
        return reorder(stream, at);
    }
  }

  const std::vector<Flat>& streams() const { return streams_; }
  std::optional<Opcode> dropped() const { return dropped_; }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }

  template <class Id>
  bool change(Id& id, int count) {
    const Id old = id;
    id = Id{static_cast<std::int32_t>(below(static_cast<std::size_t>(count)))};
    return id != old;
  }

  bool retarget(Instruction& i, const Schedule& schedule) {
    if (has(operands(i.opcode), Operands::kMicroBatch) && below(2) == 0) {
      return change(i.micro_batch, schedule.num_micro_batches());
    }
    return has(operands(i.opcode), Operands::kChunk) && change(i.chunk, schedule.num_chunks());
  }

  bool rebuffer(Instruction& i, const Schedule& schedule) {
    if (!has(operands(i.opcode), Operands::kBuffer)) return false;
    return change(i.buffer, schedule.num_pipe_buffers(i.chunk) + 1);
  }

  // Swaps two neighbours of one kind of transfer.
  bool reorder(Flat& stream, std::size_t at) {
    if (lane(stream[at].opcode) != Lane::kComm) return false;
    for (std::size_t i = at + 1; i < stream.size(); ++i) {
      if (stream[i].opcode != stream[at].opcode || stream[i] == stream[at]) continue;
      std::swap(stream[i], stream[at]);
      return true;
    }
    return false;
  }

  const Pipe& pipe_;
  std::vector<Flat> streams_;
  std::optional<Opcode> dropped_;
  std::mt19937_64& random_;
};

std::vector<Flat> flat_streams(const Pipe& pipe) {
  std::vector<Flat> streams;
  for (const auto& schedule : pipe) streams.push_back(flat(*schedule));
  return streams;
}

std::string text_of(const std::vector<Flat>& streams) {
  std::string text;
  for (const Flat& stream : streams) {
    for (const Instruction& instruction : stream) text += to_text(instruction) + " | ";
    text += "\n";
  }
  return text;
}

struct Case {
  const char* name;
  int ranks, chunks, micro_batches;
};

constexpr Case kCases[] = {
    {"1f1b", 3, 1, 4},          {"train", 2, 1, 4},     {"inference", 3, 1, 4},
    {"data_parallel", 1, 1, 3}, {"gpipe", 2, 1, 3},     {"interleaved_1f1b", 2, 2, 4},
    {"looped_bfs", 2, 3, 3},    {"zb1p", 3, 2, 6},      {"zb_h1", 4, 1, 5},
    {"zbv", 3, 2, 5},           {"dualpipev", 2, 2, 6}, {"forward_only", 3, 2, 5},
};

// The premise of the mutation test, and the verifier's other half: what is good passes both.
TEST(Verify, GoodStreamsPassAndComputeTheRightThing) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.name) + " P" + std::to_string(c.ranks));
    const bool trains = schedule_info(c.name).trains;
    const Pipe pipe =
        make_pipe(c.name, {.ranks = c.ranks, .micro_batches = c.micro_batches, .chunks = c.chunks});
    ASSERT_TRUE(verify(pipe, trains).ok()) << verify(pipe, trains).to_text();
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      EXPECT_EQ(run_blindly(*pipe[0], flat_streams(pipe), trains, seed), "");
    }
  }
}

TEST(Verify, FindsWhateverDamageMatters) {
  std::mt19937_64 random(20);
  std::map<int, int> rejected, harmless;
  for (const Case& c : kCases) {
    const bool trains = schedule_info(c.name).trains;
    const Pipe pipe =
        make_pipe(c.name, {.ranks = c.ranks, .micro_batches = c.micro_batches, .chunks = c.chunks});
    const std::vector<Flat> good = flat_streams(pipe);
    for (int i = 0; i < 400; ++i) {
      Damage damage(pipe, good, random);
      const int kind = i % 6;
      if (!damage.apply(kind)) continue;
      const Report report = verify(given(pipe, damage.streams()), trains);
      if (!report.ok()) {
        ++rejected[kind];
        EXPECT_FALSE(report.findings.front().message.empty());
        continue;
      }
      ++harmless[kind];
      // Only a model without ties does without this one, which an engine checks.
      if (damage.dropped()) {
        EXPECT_EQ(*damage.dropped(), Opcode::kReduceTiedGrads);
      }
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        ASSERT_EQ(run_blindly(*pipe[0], damage.streams(), trains, seed), "")
            << c.name << ", damage " << kind << "\n"
            << text_of(damage.streams());
      }
    }
  }
  int total = 0;
  for (int kind = 0; kind < 6; ++kind) {
    EXPECT_GT(rejected[kind], 100) << kind;
    total += rejected[kind] + harmless[kind];
  }
  EXPECT_GE(total, 2000);
}

// The same on odd maps, with orders that no rule makes.
TEST(Verify, FindsWhateverDamageMattersOnAnyMap) {
  std::mt19937_64 random(21);
  int rejected = 0, harmless = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Table table = RandomTable(seed).make();
    const Pipe pipe = lower_all("random", source_of(table));
    for (int kind = 0; kind < 6; ++kind) {
      Damage damage(pipe, flat_streams(pipe), random);
      if (!damage.apply(kind)) continue;
      if (!verify(given(pipe, damage.streams()), table.trains).ok()) {
        ++rejected;
        continue;
      }
      ++harmless;
      ASSERT_EQ(run_blindly(*pipe[0], damage.streams(), table.trains, seed), "")
          << "seed " << seed << ", damage " << kind << "\n"
          << text_of(damage.streams());
    }
  }
  EXPECT_GT(rejected, 800);
  EXPECT_GT(harmless, 10);
}

// What simulates without a proof before it must still end well: in times, or in an error.
TEST(Simulate, RefusesStreamsThatItCannotFollow) {
  const Pipe pipe = make_pipe("1f1b", {.ranks = 2, .micro_batches = 2});
  const auto refused = [&](std::size_t rank, Opcode opcode, const auto& damage) {
    std::vector<Flat> streams = flat_streams(pipe);
    Flat& stream = streams[rank];
    damage(stream, std::ranges::find(stream, opcode, &Instruction::opcode));
    return error_of([&] { simulate(given(pipe, streams), uniform_costs(2, 1)); });
  };
  const auto drop = [](Flat& stream, Flat::iterator at) { stream.erase(at); };
  EXPECT_EQ(refused(1, Opcode::kRecvActivation, drop),
            "[simulate] rank 0 sends rank 1 2 activations, which receives 1; expected as many; "
            "verify() says more");
  EXPECT_EQ(refused(1, Opcode::kSendGrad, drop),
            "[simulate] rank 1 sends rank 0 1 gradients, which receives 2; expected as many; "
            "verify() says more");
  EXPECT_EQ(
      refused(0, Opcode::kForwardPass, [](Flat&, auto at) { at->buffer = BufferId{7}; }),
      "[simulate] rank 0, step 1, ForwardPass(c0 m0 b7): the rank has no such chunk or buffer; "
      "verify() says more");
  EXPECT_NE(refused(0, Opcode::kReduceGrads, [](Flat&, auto at) { at->chunk = ChunkId{1}; })
                .find("no such chunk or buffer"),
            std::string::npos);
  const auto backward_first = [](Flat& stream, Flat::iterator at) {
    std::rotate(stream.begin(), at, stream.end());
  };
  EXPECT_NE(refused(0, Opcode::kRecvGrad, backward_first).find("the streams lock: rank 0, step 0"),
            std::string::npos);
}

TEST(Simulate, EndsWellWhateverTheDamage) {
  std::mt19937_64 random(22);
  int simulated = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Table table = RandomTable(seed).make();
    const Pipe pipe = lower_all("random", source_of(table));
    for (int kind = 0; kind < 6; ++kind) {
      Damage damage(pipe, flat_streams(pipe), random);
      if (!damage.apply(kind)) continue;
      const Pipe damaged = given(pipe, damage.streams());
      try {
        const Timeline timeline = simulate(damaged, uniform_costs(table.map.num_stages(), 1));
        EXPECT_EQ(timeline.ranks.size(), pipe.size());
        ++simulated;
      } catch (const ScheduleError&) {
        EXPECT_FALSE(verify(damaged, table.trains).ok());
        ++refused;
      }
    }
  }
  EXPECT_GT(simulated, 100);
  EXPECT_GT(refused, 100);
}

// The other premise: the blind executor does notice damage.
TEST(Verify, TheExecutorOfTheTestsNotices) {
  const Pipe pipe = make_pipe("1f1b", {.ranks = 2, .micro_batches = 3});
  for (const Opcode opcode : {Opcode::kForwardPass, Opcode::kBackwardPass, Opcode::kSendGrad,
                              Opcode::kReduceGrads, Opcode::kOptimizerStep}) {
    std::vector<Flat> streams = flat_streams(pipe);
    const auto found = std::ranges::find(streams[1], opcode, &Instruction::opcode);
    ASSERT_NE(found, streams[1].end());
    streams[1].erase(found);
    EXPECT_NE(run_blindly(*pipe[0], streams, true, 1), "") << name(opcode);
  }
}

TEST(Verify, SaysWhoWaitsForWhom) {
  const Pipe pipe = make_pipe("1f1b", {.ranks = 2, .micro_batches = 2});
  std::vector<Flat> streams = flat_streams(pipe);
  // Rank 0 takes the first gradient before it sends the first activation.
  const auto send = std::ranges::find(streams[0], Opcode::kSendActivation, &Instruction::opcode);
  const auto receive = std::ranges::find(streams[0], Opcode::kRecvGrad, &Instruction::opcode);
  std::rotate(send, receive, receive + 1);
  const Report report = verify(given(pipe, streams), true);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.findings[0].message,
            "rank 0, step 2, RecvGrad(c0 m0 b0): its activation has not been sent");
}

TEST(Verify, ReportsADeadlockOnEveryRank) {
  // Both ranks of a loop with two chunks wait for the other one's second stage first.
  const Pipe pipe = make_pipe("looped_bfs", {.ranks = 2, .micro_batches = 2, .chunks = 2});
  std::vector<Flat> streams = flat_streams(pipe);
  const auto is = [](Opcode opcode, int chunk) {
    return [=](const Instruction& i) { return i.opcode == opcode && i.chunk.value == chunk; };
  };
  // Rank 0 wants its second stage's input before it has sent what rank 1 makes it from.
  Flat& first = streams[0];
  const auto send = std::ranges::find_if(first, is(Opcode::kSendActivation, 0));
  const auto receive = std::ranges::find_if(first, is(Opcode::kRecvActivation, 1));
  std::rotate(send, receive, receive + 1);
  const Report report = verify(given(pipe, streams), true);
  ASSERT_EQ(report.findings.size(), 2u) << report.to_text();
  EXPECT_EQ(report.findings[0].message,
            "rank 0, step 2, RecvActivation(c1 m0 b0): waits for rank 1, step 2, "
            "SendActivation(c0 m0 b0), which stands at rank 1, step 0, RecvActivation(c0 m0 b0)");
  EXPECT_EQ(report.findings[1].step, 0);
  EXPECT_NE(report.grid.find("rank 0"), std::string::npos);
  EXPECT_THROW(require_verified(given(pipe, streams), true), ScheduleError);
}

TEST(Verify, TellsWhetherSendsMayBlock) {
  EXPECT_TRUE(verify(make_pipe("train", {.ranks = 4, .micro_batches = 8}), true).rendezvous_safe);
  EXPECT_TRUE(
      verify(make_pipe("inference", {.ranks = 4, .micro_batches = 8}), false).rendezvous_safe);
  EXPECT_FALSE(verify(make_pipe("zbv", {.ranks = 4, .micro_batches = 8, .chunks = 2}), true)
                   .rendezvous_safe);
}

TEST(Verify, RefusesWhatIsNoPipe) {
  Pipe pipe = make_pipe("1f1b", {.ranks = 2, .micro_batches = 2});
  std::swap(pipe[0], pipe[1]);
  EXPECT_EQ(error_of([&] { verify(pipe, true); }),
            "[pipe] stream 0 is that of rank 1; expected all ranks in rank order");
  pipe.pop_back();
  EXPECT_THROW(verify(pipe, true), ScheduleError);
  EXPECT_THROW(verify({}, true), ScheduleError);
}

}  // namespace
}  // namespace penstock::schedule
