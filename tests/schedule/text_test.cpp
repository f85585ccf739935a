#include "schedule/text.h"

#include <random>

#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

TEST(Text, PrintsOnlyTheOperandsOfTheOpcode) {
  EXPECT_EQ(to_text(instruction(Opcode::kRecvActivation, ChunkId{0}, MicroBatchId{5}, BufferId{1})),
            "RecvActivation(c0 m5 b1)");
  EXPECT_EQ(to_text(instruction(Opcode::kReduceGrads, ChunkId{2})), "ReduceGrads(c2)");
  EXPECT_EQ(to_text(instruction(Opcode::kOptimizerStep)), "OptimizerStep()");
}

TEST(Text, PrintsAndParsesEveryOpcode) {
  Step step;
  std::string expected = "0:\n1: ";
  for (const Opcode opcode : kAllOpcodes) {
    Instruction i{opcode, {}, {}, {}};
    if (has(operands(opcode), Operands::kChunk)) i.chunk = ChunkId{3};
    if (has(operands(opcode), Operands::kMicroBatch)) i.micro_batch = MicroBatchId{2147483647};
    if (has(operands(opcode), Operands::kBuffer)) i.buffer = BufferId{0};
    expected += (step.empty() ? "" : " | ") + to_text(i);
    step.push_back(i);
  }
  const std::vector<Step> both = {{}, step};
  EXPECT_EQ(to_text(both), expected + "\n");
  EXPECT_EQ(parse_text(expected + "\n"), both);
}

TEST(Text, IsParsedBackForEverySchedule) {
  for (const ScheduleInfo& info : registered_schedules()) {
    for (const int m : {8, 9, 11, 30}) {
      const int ranks = info.name == "data_parallel" ? 1 : 4;
      const int chunks = info.chunks == 0 ? 2 : info.chunks;
      for (const auto& schedule :
           make_pipe(info.name, {.ranks = ranks, .micro_batches = m, .chunks = chunks})) {
        const std::string text = to_text(*schedule);
        EXPECT_EQ(parse_text(text), all_steps(*schedule));
        EXPECT_EQ(to_text(parse_text(text)), text);
      }
    }
  }
}

TEST(Text, MayLackTheLastNewlineOrEverything) {
  EXPECT_EQ(parse_text("").size(), 0u);
  EXPECT_EQ(parse_text("0:").size(), 1u);
  EXPECT_EQ(parse_text("0:\n1: OptimizerStep()").size(), 2u);
}

struct Malformed {
  const char* text;
  int line;
  int column;
  const char* expected;
  const char* found;
};

TEST(Text, RefusesAnythingElseAndSaysWhere) {
  const Malformed cases[] = {
      {"1:\n", 1, 1, "\"0:\"", "\"1:\""},
      {"0:\n0:\n", 2, 1, "\"1:\"", "\"0:\""},
      {"0:\n\n", 2, 1, "\"1:\"", "the end of the line"},
      {"00:\n", 1, 1, "\"0:\"", "\"00:\""},
      {"0\n", 1, 1, "\"0:\"", "\"0\""},
      {"0:\r\n", 1, 3, "a space or the end of the line", "\"\\x0d\""},
      {"0: \n", 1, 4, "the name of an opcode", "the end of the line"},
      {"0:OptimizerStep()\n", 1, 3, "a space", "\"OptimizerStep()\""},
      {"0:  OptimizerStep()\n", 1, 4, "the name of an opcode", "\" OptimizerStep()\""},
      {"0: Forward(c0 m0 b0)\n", 1, 4, "the name of an opcode", "\"Forward(c0 m0 b0)\""},
      {"0: OptimizerStep\n", 1, 17, "\"(\"", "the end of the line"},
      {"0: OptimizerStep(c0)\n", 1, 18, "\")\": OptimizerStep has no more", "\"c0)\""},
      {"0: OptimizerStep() \n", 1, 19, "\" | \" or the end of the line", "\" \""},
      {"0: OptimizerStep()| OptimizerStep()\n", 1, 19, "\" | \"", "\"| OptimizerStep()\""},
      {"0: OptimizerStep() | \n", 1, 22, "the name of an opcode", "the end of the line"},
      {"0: ReduceGrads()\n", 1, 16, "\"c\" and a number", "\")\""},
      {"0: ForwardPass(c0 m0)\n", 1, 21, "\" b\" and a number", "\")\""},
      {"0: ForwardPass(m0 c0 b0)\n", 1, 16, "\"c\" and a number", "\"m0 c0 b0)\""},
      {"0: ForwardPass(c0  m0 b0)\n", 1, 18, "\" m\" and a number", "\"  m0 b0)\""},
      {"0:\n1: ForwardPass(c0 m-1 b0)\n", 2, 20, "a number from 0", "\"-1 b0)\""},
      {"0: ForwardPass(c0 m+1 b0)\n", 1, 20, "a number from 0", "\"+1 b0)\""},
      {"0: ForwardPass(c0 m01 b0)\n", 1, 20, "without leading zeros", "\"01 b0)\""},
      {"0: ForwardPass(c0 m2147483648 b0)\n", 1, 20, "a number from 0 to 2147483647",
       "\"2147483648 b0)\""},
      {"0: ForwardPass(c m0 b0)\n", 1, 17, "a number", "\" m0 b0)\""},
      {"0: ForwardPass(c0 m0 b0 x1)\n", 1, 24, "no more operands", "\" x1)\""},
      {"0: a name that goes on and on and on\n", 1, 4, "the name of an opcode",
       "\"a name that goes on and …\""},
  };
  for (const Malformed& c : cases) {
    SCOPED_TRACE(c.text);
    const std::string error = error_of([&] { parse_text(c.text); });
    const std::string place =
        "line " + std::to_string(c.line) + ", column " + std::to_string(c.column) + ": ";
    EXPECT_NE(error.find(place), std::string::npos) << error;
    EXPECT_NE(error.find(c.expected), std::string::npos) << error;
    EXPECT_NE(error.find(std::string("found ") + c.found), std::string::npos) << error;
  }
}

// One random change of the kinds that editors, transfers and typing make.
std::string mutate(std::string text, std::mt19937& random) {
  const auto below = [&random](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  using namespace std::string_view_literals;
  constexpr std::string_view kAlphabet = "0123456789cmb()| :\n-+.FORWARDpass\0\xff"sv;
  if (text.empty()) return std::string(1, kAlphabet[below(kAlphabet.size())]);
  const std::size_t at = below(text.size());
  switch (below(5)) {
    case 0:
      text[at] = kAlphabet[below(kAlphabet.size())];
      break;
    case 1:
      text.insert(at, 1, kAlphabet[below(kAlphabet.size())]);
      break;
    case 2:
      text.erase(at, 1 + below(8));
      break;
    case 3:
      text.resize(at);
      break;
    default:
      text.insert(below(text.size()), text.substr(at, 1 + below(40)));
  }
  return text;
}

TEST(Text, RandomChangesAreRefusedOrPrintBackUnchanged) {
  std::mt19937 random(7);
  const std::string original =
      to_text(*make_schedule("train", {.ranks = 3, .micro_batches = 12, .rank = PipeRank{1}}));
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = original;
    for (int changes = 1 + i % 3; changes > 0; --changes) text = mutate(std::move(text), random);
    try {
      std::string printed = to_text(parse_text(text));
      if (!text.ends_with('\n') && !text.empty()) printed.pop_back();
      ASSERT_EQ(printed, text);
      ++accepted;
    } catch (const ScheduleError&) {
      ++refused;
    }
  }
  // Both ways out are taken: cut at a line's end or another digit is a program, most are not.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace penstock::schedule
