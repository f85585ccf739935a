// DeepSpeed's tests of its schedules, made anew, and the properties that it documents.
#include "schedule/deepspeed.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

using enum Opcode;

ScheduleArgs args(int ranks, int micro_batches, int rank) {
  return {.ranks = ranks, .micro_batches = micro_batches, .rank = PipeRank{rank}};
}

std::vector<Opcode> opcodes(const Step& step) {
  std::vector<Opcode> out;
  for (const Instruction& instruction : step) out.push_back(instruction.opcode);
  return out;
}

TEST(InferenceSchedule, OfOneStageLoadsAndRunsEachMicroBatch) {
  const InferenceSchedule schedule(args(1, 4, 0));
  ASSERT_EQ(schedule.num_steps(), 4);
  for (const Step& step : steps(schedule)) {
    ASSERT_EQ(opcodes(step), (std::vector{kLoadMicroBatch, kForwardPass}));
    EXPECT_EQ(step[0].buffer, step[1].buffer);
  }
}

TEST(InferenceSchedule, FirstStageLoadsRunsAndSends) {
  for (const int m : {1, 3, 8, 10}) {
    SCOPED_TRACE(m);
    const InferenceSchedule schedule(args(3, m, 0));
    ASSERT_EQ(schedule.num_steps(), m + 2);
    EXPECT_EQ(opcodes(emitted(schedule, 0)), (std::vector{kLoadMicroBatch, kForwardPass}));
    for (int t = 1; t < m; ++t) {
      const Step step = emitted(schedule, t);
      EXPECT_EQ(step.size(), 3u);
      EXPECT_EQ(count(step, kLoadMicroBatch), 1);
      EXPECT_EQ(count(step, kForwardPass), 1);
      EXPECT_EQ(count(step, kSendActivation), 1);
    }
    EXPECT_EQ(opcodes(emitted(schedule, m)), std::vector{kSendActivation});
    EXPECT_TRUE(emitted(schedule, m + 1).empty());
  }
}

TEST(InferenceSchedule, MiddleStageReceivesRunsAndSends) {
  for (const int m : {1, 3, 8, 10}) {
    SCOPED_TRACE(m);
    const InferenceSchedule schedule(args(3, m, 1));
    ASSERT_EQ(schedule.num_steps(), m + 2);
    EXPECT_TRUE(emitted(schedule, 0).empty());
    for (int t = 1; t <= m; ++t) {
      const Step step = emitted(schedule, t);
      EXPECT_EQ(count(step, kForwardPass), 1);
      EXPECT_EQ(count(step, kRecvActivation), 1);
      EXPECT_EQ(count(step, kLoadMicroBatch), 0);
      EXPECT_EQ(count(step, kSendActivation), t == 1 ? 0 : 1);
    }
    EXPECT_EQ(opcodes(emitted(schedule, m + 1)), std::vector{kSendActivation});
  }
}

TEST(InferenceSchedule, LastStageReceivesLoadsAndRuns) {
  for (const int m : {1, 3, 8, 10}) {
    SCOPED_TRACE(m);
    const InferenceSchedule schedule(args(3, m, 2));
    ASSERT_EQ(schedule.num_steps(), m + 2);
    EXPECT_TRUE(emitted(schedule, 0).empty());
    EXPECT_TRUE(emitted(schedule, 1).empty());
    for (int t = 2; t < m + 2; ++t) {
      const Step step = emitted(schedule, t);
      EXPECT_EQ(step.size(), 3u);
      EXPECT_EQ(count(step, kLoadMicroBatch), 1);
      EXPECT_EQ(count(step, kForwardPass), 1);
      EXPECT_EQ(count(step, kRecvActivation), 1);
    }
  }
}

TEST(TrainSchedule, OfOneStageAlternatesForwardAndBackward) {
  const TrainSchedule schedule(args(1, 4, 0));
  ASSERT_EQ(schedule.num_steps(), 8);
  for (int t = 0; t < 8; ++t) {
    const Step step = emitted(schedule, t);
    if (t % 2 == 0) {
      ASSERT_EQ(opcodes(step), (std::vector{kLoadMicroBatch, kForwardPass}));
      EXPECT_EQ(step[0].buffer, step[1].buffer);
    } else {
      EXPECT_EQ(step.front().opcode, kBackwardPass);
      EXPECT_EQ(step.size(), t == 7 ? 4u : 1u);
    }
  }
  EXPECT_EQ(opcodes(emitted(schedule, 7)),
            (std::vector{kBackwardPass, kReduceTiedGrads, kReduceGrads, kOptimizerStep}));
}

TEST(TrainSchedule, FirstStageHasNobodyBeforeIt) {
  const TrainSchedule schedule(args(3, 8, 0));
  const std::vector<Instruction> stream = flat(schedule);
  EXPECT_EQ(count(stream, kForwardPass), 8);
  EXPECT_EQ(count(stream, kSendGrad), 0);
  EXPECT_EQ(count(stream, kRecvActivation), 0);
  for (const Instruction& i : stream) {
    if (!has(operands(i.opcode), Operands::kBuffer)) continue;
    EXPECT_GE(i.buffer.value, 0);
    EXPECT_LT(i.buffer.value, schedule.num_pipe_buffers(ChunkId{0}));
  }
}

TEST(TrainSchedule, LastStageHasNobodyAfterIt) {
  const TrainSchedule schedule(args(3, 4, 2));
  EXPECT_EQ(schedule.num_steps(), 12);
  const std::vector<Instruction> stream = flat(schedule);
  EXPECT_EQ(count(stream, kForwardPass), 4);
  EXPECT_EQ(count(stream, kSendActivation), 0);
  EXPECT_EQ(count(stream, kRecvGrad), 0);
}

TEST(TrainSchedule, KnowsFirstAndLastStage) {
  for (int rank = 0; rank < 3; ++rank) {
    const TrainSchedule schedule(args(3, 4, rank));
    EXPECT_EQ(schedule.is_first_stage(ChunkId{0}), rank == 0);
    EXPECT_EQ(schedule.is_last_stage(ChunkId{0}), rank == 2);
    EXPECT_EQ(schedule.stage_of(ChunkId{0}), StageId{rank});
    EXPECT_EQ(schedule.rank_of(StageId{rank}), PipeRank{rank});
  }
  const TrainSchedule alone(args(1, 4, 0));
  EXPECT_TRUE(alone.is_first_stage(ChunkId{0}) && alone.is_last_stage(ChunkId{0}));
}

// The example of the reference, written out: two stages, two micro batches.
TEST(TrainSchedule, OfTwoStagesAndTwoMicroBatchesIsTheDocumentedStream) {
  EXPECT_EQ(to_text(TrainSchedule(args(2, 2, 0))),
            "0: LoadMicroBatch(c0 m0 b0) | ForwardPass(c0 m0 b0)\n"
            "1: SendActivation(c0 m0 b0)\n"
            "2: LoadMicroBatch(c0 m1 b1) | ForwardPass(c0 m1 b1)\n"
            "3: RecvGrad(c0 m0 b0) | SendActivation(c0 m1 b1) | BackwardPass(c0 m0 b0)\n"
            "4:\n"
            "5: RecvGrad(c0 m1 b1) | BackwardPass(c0 m1 b1) | ReduceTiedGrads() | "
            "ReduceGrads(c0) | OptimizerStep()\n");
  EXPECT_EQ(to_text(TrainSchedule(args(2, 2, 1))),
            "0:\n"
            "1: RecvActivation(c0 m0 b0) | LoadMicroBatch(c0 m0 b0) | ForwardPass(c0 m0 b0)\n"
            "2: BackwardPass(c0 m0 b0)\n"
            "3: SendGrad(c0 m0 b0) | RecvActivation(c0 m1 b1) | LoadMicroBatch(c0 m1 b1) | "
            "ForwardPass(c0 m1 b1)\n"
            "4: BackwardPass(c0 m1 b1)\n"
            "5: SendGrad(c0 m1 b1) | ReduceTiedGrads() | ReduceGrads(c0) | OptimizerStep()\n");
}

TEST(TrainSchedule, HoldsNoMoreMicroBatchesThanStagesToCome) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int m = 1; m <= 20; ++m) {
      for (int rank = 0; rank < ranks; ++rank) {
        int in_flight = 0;
        int most = 0;
        for (const Instruction& i : flat(TrainSchedule(args(ranks, m, rank)))) {
          in_flight += (i.opcode == kForwardPass) - (i.opcode == kBackwardPass);
          most = std::max(most, in_flight);
        }
        EXPECT_EQ(in_flight, 0);
        EXPECT_EQ(most, std::min(ranks - rank, m)) << ranks << " " << m << " " << rank;
      }
    }
  }
}

// No time is asserted: a step that cost work in proportion to the pipe would time out here.
TEST(TrainSchedule, OfAThousandStagesStreamsEveryMicroBatch) {
  constexpr int kRanks = 1024;
  constexpr int kMicroBatches = 4096;
  const TrainSchedule schedule(args(kRanks, kMicroBatches, 511));
  std::int64_t num_steps = 0;
  std::vector<int> counts(kOpcodeCount);
  for (const Step& step : steps(schedule)) {
    ++num_steps;
    for (const Instruction& i : step) ++counts[static_cast<std::size_t>(i.opcode)];
  }
  EXPECT_EQ(num_steps, 2 * (kMicroBatches + kRanks - 1));
  EXPECT_EQ(schedule.num_pipe_buffers(ChunkId{0}), kRanks - 511);
  for (const Opcode opcode :
       {kForwardPass, kBackwardPass, kSendActivation, kRecvActivation, kSendGrad, kRecvGrad}) {
    EXPECT_EQ(counts[static_cast<std::size_t>(opcode)], kMicroBatches) << name(opcode);
  }
}

TEST(TrainSchedule, CountsItsStepsBeyond32Bits) {
  const TrainSchedule schedule(args(2, 2147483647, 1));
  EXPECT_EQ(schedule.num_steps(), 4294967296);
  EXPECT_EQ(emitted(schedule, 4294967294).back(),
            instruction(kBackwardPass, ChunkId{0}, MicroBatchId{2147483646}, BufferId{0}));
}

TEST(DataParallelSchedule, RunsEachMicroBatchAndReducesInTheLastStep) {
  EXPECT_EQ(to_text(DataParallelSchedule(args(1, 2, 0))),
            "0: LoadMicroBatch(c0 m0 b0) | ForwardPass(c0 m0 b0) | BackwardPass(c0 m0 b0)\n"
            "1: LoadMicroBatch(c0 m1 b0) | ForwardPass(c0 m1 b0) | BackwardPass(c0 m1 b0) | "
            "ReduceGrads(c0) | OptimizerStep()\n");
}

}  // namespace
}  // namespace penstock::schedule
