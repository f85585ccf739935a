#include <type_traits>

#include <gtest/gtest.h>

#include "schedule/instruction.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

using enum Operands;

// Another expansion of opcode.def, as the engine's dispatch table is one.
enum RowNumber {
#define OPCODE(name, operands, lane) kRow##name,
#include "schedule/opcode.def"
};

TEST(Opcode, TableHoldsTheTwelveOpcodesOfTheDesign) {
  EXPECT_EQ(kOpcodeCount, 12u);
  EXPECT_EQ(name(Opcode::kLoadMicroBatch), "LoadMicroBatch");
  EXPECT_EQ(name(Opcode::kBackwardWeight), "BackwardWeight");
  EXPECT_EQ(name(Opcode::kOptimizerStep), "OptimizerStep");
  EXPECT_EQ(static_cast<int>(Opcode::kRecvGrad), kRowRecvGrad);
}

TEST(Opcode, HasItsOperandsAndLane) {
  for (const Opcode opcode :
       {Opcode::kLoadMicroBatch, Opcode::kForwardPass, Opcode::kBackwardPass,
        Opcode::kBackwardInput, Opcode::kBackwardWeight, Opcode::kSendActivation,
        Opcode::kRecvActivation, Opcode::kSendGrad, Opcode::kRecvGrad}) {
    EXPECT_EQ(operands(opcode), kChunk | kMicroBatch | kBuffer) << name(opcode);
  }
  EXPECT_EQ(operands(Opcode::kReduceGrads), kChunk);
  EXPECT_EQ(operands(Opcode::kReduceTiedGrads), kNoOperands);
  EXPECT_EQ(operands(Opcode::kOptimizerStep), kNoOperands);

  EXPECT_EQ(lane(Opcode::kLoadMicroBatch), Lane::kHost);
  EXPECT_EQ(lane(Opcode::kForwardPass), Lane::kCompute);
  EXPECT_EQ(lane(Opcode::kSendGrad), Lane::kComm);
  EXPECT_EQ(lane(Opcode::kReduceTiedGrads), Lane::kComm);
}

TEST(Opcode, IsFoundByItsExactNameOnly) {
  for (const Opcode opcode : kAllOpcodes) EXPECT_EQ(opcode_named(name(opcode)), opcode);
  EXPECT_EQ(opcode_named("forwardpass"), std::nullopt);
  EXPECT_EQ(opcode_named("ForwardPass "), std::nullopt);
  EXPECT_EQ(opcode_named(""), std::nullopt);
}

TEST(Ids, AreDistinctTypesThatNeedExplicitConstruction) {
  static_assert(!std::is_convertible_v<int, ChunkId>);
  static_assert(!std::is_constructible_v<ChunkId, BufferId>);
  static_assert(!std::is_constructible_v<StageId, PipeRank>);
  static_assert(std::is_trivially_copyable_v<MicroBatchId>);
  EXPECT_LT(StageId{2}, StageId{3});
  EXPECT_EQ(StageId{}.value, StageId::kNone);
  EXPECT_NE(StageId{}, StageId{0});
}

TEST(Instruction, EqualsItselfOnlyWithTheSameOperands) {
  const Instruction one = instruction(Opcode::kSendGrad, ChunkId{0}, MicroBatchId{5}, BufferId{1});
  EXPECT_EQ(one, instruction(Opcode::kSendGrad, ChunkId{0}, MicroBatchId{5}, BufferId{1}));
  EXPECT_NE(one, instruction(Opcode::kRecvGrad, ChunkId{0}, MicroBatchId{5}, BufferId{1}));
  EXPECT_NE(one, instruction(Opcode::kSendGrad, ChunkId{1}, MicroBatchId{5}, BufferId{1}));
  EXPECT_NE(one, instruction(Opcode::kSendGrad, ChunkId{0}, MicroBatchId{6}, BufferId{1}));
  EXPECT_NE(one, instruction(Opcode::kSendGrad, ChunkId{0}, MicroBatchId{5}, BufferId{0}));
}

TEST(Instruction, OperandsItDoesNotHaveAreNone) {
  constexpr Instruction kReduce = instruction(Opcode::kReduceGrads, ChunkId{3});
  static_assert(kReduce.chunk == ChunkId{3});
  static_assert(kReduce.micro_batch == MicroBatchId{} && kReduce.buffer == BufferId{});
  static_assert(instruction(Opcode::kOptimizerStep).chunk == ChunkId{});
}

TEST(Instruction, RefusesOperandsThatItsOpcodeDoesNotHave) {
  EXPECT_NE(error_of([] { instruction(Opcode::kOptimizerStep, ChunkId{0}); }).find("OptimizerStep"),
            std::string::npos);
  EXPECT_THROW(instruction(Opcode::kForwardPass), ScheduleError);
  EXPECT_THROW(instruction(Opcode::kReduceGrads, ChunkId{0}, MicroBatchId{0}, BufferId{0}),
               ScheduleError);
}

}  // namespace
}  // namespace penstock::schedule
