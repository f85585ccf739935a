// The Schedule interface: arguments, ranges, the stage map, identity.
#include "schedule/schedule.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>

#include <gtest/gtest.h>

#include "schedule/deepspeed.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

static_assert(std::input_iterator<StepRange::Iterator>);
static_assert(std::ranges::input_range<StepRange>);
static_assert(std::ranges::sized_range<StepRange>);
static_assert(std::is_same_v<std::ranges::range_reference_t<StepRange>, const Step&>);

// A schedule as a user may write one: two chunks on each rank, the stages in a V, a split backward.
class VShaped final : public Schedule {
 public:
  explicit VShaped(const ScheduleArgs& args) : Schedule("v_shaped", in_a_v(args)) {}
  std::int64_t num_steps() const override { return 3; }

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override {
    constexpr Opcode kPasses[] = {Opcode::kForwardPass, Opcode::kBackwardInput,
                                  Opcode::kBackwardWeight};
    out.push_back(instruction(kPasses[step], ChunkId{1}, MicroBatchId{0}, BufferId{0}));
  }
  int do_num_pipe_buffers(ChunkId chunk) const override { return 1 + chunk.value; }

  static ScheduleArgs in_a_v(ScheduleArgs args) {
    args.stage_map = StageMap::v(args.ranks, args.chunks);
    return args;
  }
};

// Chunks, but the stage map that a schedule has by default.
class Looped final : public Schedule {
 public:
  explicit Looped(const ScheduleArgs& args) : Schedule("looped", args) {}
  std::int64_t num_steps() const override { return 0; }

 private:
  void do_emit(std::int64_t, std::vector<Instruction>&) const override {}
  int do_num_pipe_buffers(ChunkId) const override { return 0; }
};

TEST(Schedule, EmitAppends) {
  const TrainSchedule schedule({.ranks = 1, .micro_batches = 1});
  Step out;
  schedule.emit(0, out);
  schedule.emit(0, out);
  EXPECT_EQ(count(out, Opcode::kForwardPass), 2);
}

// Its steps are what do_emit() must not do.
class Faulty final : public Schedule {
 public:
  Faulty() : Schedule("faulty", {}) {}
  std::int64_t num_steps() const override { return 3; }

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override {
    if (step == 0) out.clear();
    if (step == 1) out.push_back({static_cast<Opcode>(kOpcodeCount), {}, {}, {}});
    if (step == 2) {
      out.push_back(instruction(Opcode::kOptimizerStep));
      out.push_back({Opcode::kReduceGrads, ChunkId{0}, {}, BufferId{0}});
    }
  }
  int do_num_pipe_buffers(ChunkId) const override { return 0; }
};

TEST(Schedule, RefusesWhatIsNoInstruction) {
  const auto refused = [](std::int64_t step) {
    return error_of([step] {
      Step out = {instruction(Opcode::kReduceTiedGrads)};
      Faulty().emit(step, out);
    });
  };
  EXPECT_EQ(refused(0),
            "[schedule faulty] do_emit() of step 0 took instructions away that were in `out`; "
            "expected it to append alone");
  EXPECT_EQ(
      refused(1),
      "[schedule faulty] instruction 0 of step 1 is none: its opcode does not exist, or it has "
      "an operand that the opcode does not have; make instructions with instruction()");
  EXPECT_NE(refused(2).find("instruction 1 of step 2 is none"), std::string::npos);
}

TEST(Schedule, RefusesStepsChunksAndStagesOutOfRange) {
  const TrainSchedule schedule({.ranks = 2, .micro_batches = 3, .rank = PipeRank{1}});
  Step out;
  EXPECT_EQ(error_of([&] { schedule.emit(8, out); }),
            "[schedule train] step 8 does not exist; expected 0 to 7");
  EXPECT_THROW(schedule.emit(-1, out), ScheduleError);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(error_of([&] { schedule.num_pipe_buffers(ChunkId{1}); }),
            "[schedule train] chunk 1 does not exist; expected 0 to 0");
  EXPECT_THROW(schedule.stage_of(ChunkId{}), ScheduleError);
  EXPECT_EQ(error_of([&] { schedule.rank_of(StageId{2}); }),
            "[stage map] stage 2 does not exist; expected 0 to 1");
  EXPECT_EQ(error_of([] {
              Step none;
              Looped({}).emit(0, none);
            }),
            "[schedule looped] step 0 does not exist; there are none");
}

TEST(Schedule, RefusesArgumentsInConfigTerms) {
  EXPECT_EQ(error_of([] { TrainSchedule({.ranks = 0}); }),
            "[schedule train] pipeline.stages is 0; expected 1 or more");
  EXPECT_NE(error_of([] {
              InferenceSchedule({.micro_batches = -4});
            }).find("gradient_accumulation_steps is -4; expected 1 or more"),
            std::string::npos);
  EXPECT_NE(error_of([] { VShaped({.chunks = 0}); }).find("pipeline.chunks is 0"),
            std::string::npos);
  EXPECT_NE(error_of([] { TrainSchedule({.chunks = 2}); }).find("pipeline.chunks is 2; expected 1"),
            std::string::npos);
  EXPECT_NE(
      error_of([] { DataParallelSchedule({.ranks = 2}); }).find("pipeline.stages is 2; expected 1"),
      std::string::npos);
  EXPECT_NE(error_of([] {
              TrainSchedule({.ranks = 4, .rank = PipeRank{4}});
            }).find("pipe rank 4 does not exist; expected 0 to 3"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              VShaped({.ranks = 65536, .chunks = 65536});
            }).find("pipeline.stages 65536 times pipeline.chunks 65536"),
            std::string::npos);
}

TEST(Schedule, StagesGoRoundTheRanksByDefault) {
  for (int rank = 0; rank < 4; ++rank) {
    const Looped schedule({.ranks = 4, .chunks = 3, .rank = PipeRank{rank}});
    EXPECT_EQ(schedule.num_stages(), 12);
    for (int chunk = 0; chunk < 3; ++chunk) {
      const StageId stage = schedule.stage_of(ChunkId{chunk});
      EXPECT_EQ(stage.value, 4 * chunk + rank);
      EXPECT_EQ(schedule.rank_of(stage), PipeRank{rank});
    }
  }
}

TEST(Schedule, OfOnesOwnMayPlaceItsStages) {
  const VShaped schedule({.ranks = 4, .chunks = 2, .rank = PipeRank{0}});
  EXPECT_EQ(schedule.stage_of(ChunkId{1}), StageId{7});
  EXPECT_EQ(schedule.rank_of(StageId{6}), PipeRank{1});
  EXPECT_TRUE(schedule.is_first_stage(ChunkId{0}));
  EXPECT_TRUE(schedule.is_last_stage(ChunkId{1}));
  EXPECT_EQ(schedule.num_pipe_buffers(ChunkId{1}), 2);
  EXPECT_EQ(to_text(schedule),
            "0: ForwardPass(c1 m0 b0)\n1: BackwardInput(c1 m0 b0)\n2: BackwardWeight(c1 m0 b0)\n");
}

TEST(StepRange, YieldsEachStepOnce) {
  const TrainSchedule schedule({.ranks = 3, .micro_batches = 5, .rank = PipeRank{1}});
  std::int64_t index = 0;
  for (const std::vector<Instruction>& step : steps(schedule)) {
    EXPECT_EQ(step, emitted(schedule, index));
    ++index;
  }
  EXPECT_EQ(index, schedule.num_steps());
  EXPECT_EQ(steps(schedule).size(), 14u);
}

TEST(StepRange, WorksWithAlgorithmsAndEmptySchedules) {
  const TrainSchedule schedule({.ranks = 2, .micro_batches = 2});
  const StepRange range = steps(schedule);
  EXPECT_EQ(std::ranges::count_if(range, &Step::empty), 1);
  const auto three = std::ranges::find(range, 3u, &Step::size);
  ASSERT_NE(three, range.end());
  EXPECT_EQ(three->front(),
            instruction(Opcode::kRecvGrad, ChunkId{0}, MicroBatchId{0}, BufferId{0}));

  const Looped empty({});
  EXPECT_TRUE(std::ranges::empty(steps(empty)));
}

// FNV-1a of the documented bytes, computed by a separate program.
TEST(Hash, IsTheDocumentedFunction) {
  EXPECT_EQ(hash(TrainSchedule({.ranks = 4, .micro_batches = 8})), 0x897a423c2c609de7u);
  EXPECT_EQ(hash(VShaped({.ranks = 2, .micro_batches = 3, .chunks = 2})), 0x5f60ae3c603383b2u);
}

TEST(Hash, IsEqualOnAllRanksAndDifferentForAnythingElse) {
  std::set<std::uint64_t> hashes;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int m = 1; m <= 8; ++m) {
      const auto train = hash(TrainSchedule({.ranks = ranks, .micro_batches = m}));
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(hash(TrainSchedule({.ranks = ranks, .micro_batches = m, .rank = PipeRank{rank}})),
                  train);
      }
      hashes.insert(train);
      hashes.insert(hash(InferenceSchedule({.ranks = ranks, .micro_batches = m})));
      hashes.insert(hash(VShaped({.ranks = ranks, .micro_batches = m, .chunks = 2})));
      hashes.insert(hash(Looped({.ranks = ranks, .micro_batches = m, .chunks = 2})));
    }
  }
  EXPECT_EQ(hashes.size(), 4u * 4u * 8u);
}

}  // namespace
}  // namespace penstock::schedule
