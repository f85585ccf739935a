// What penstock-schedule prints, and how it ends.
#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "schedule/text.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

ToolResult run(const std::string& arguments) {
  return run_tool(PENSTOCK_SCHEDULE, arguments);
}

TEST(PenstockSchedule, ShowsTheGridOfAllRanks) {
  const ToolResult result = run("show 1f1b --ranks 2 --micro-batches 3");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out,
            "1f1b: pipeline.stages 2, gradient_accumulation_steps 3, 8 steps\n"
            "\n"
            "step    0  1  2  3  4  5  6  7\n"
            "rank 0  F0 .  F1 B0 F2 B1 .  B2+O\n"
            "rank 1  .  F0 B0 F1 B1 F2 B2 O\n"
            "\n"
            "pipe buffers of each rank: 2 2\n"
            "F forward, B backward (I its input part, W its weight part), O optimizer step, "
            ". no computation\n");
}

TEST(PenstockSchedule, ShowsOneRankOfTheGrid) {
  const ToolResult result = run("show inference --ranks 3 --micro-batches 2 --rank 1");
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("step    0 1  2  3\nrank 1  . F0 F1 .\n\n"), std::string::npos)
      << result.out;
}

TEST(PenstockSchedule, PrintsTextThatTheLibraryReadsBack) {
  const ToolResult one = run("show 1f1b --ranks 3 --micro-batches 5 --text --rank 1");
  EXPECT_EQ(one.status, 0);
  const auto pipe = schedule::make_pipe("1f1b", {.ranks = 3, .micro_batches = 5});
  EXPECT_EQ(one.out, schedule::to_text(*pipe[1]));
  EXPECT_EQ(schedule::parse_text(one.out).size(), 14u);

  const ToolResult all = run("show 1f1b --ranks 3 --micro-batches 5 --text");
  EXPECT_EQ(all.out, "rank 0\n" + schedule::to_text(*pipe[0]) + "\nrank 1\n" +
                         schedule::to_text(*pipe[1]) + "\nrank 2\n" + schedule::to_text(*pipe[2]));
}

TEST(PenstockSchedule, ListsEverySchedule) {
  const ToolResult result = run("list");
  EXPECT_EQ(result.status, 0);
  for (const auto& info : schedule::registered_schedules()) {
    const std::size_t name = result.out.find(std::string(info.name) + " ");
    ASSERT_NE(name, std::string::npos) << info.name;
    EXPECT_NE(result.out.find(info.constraints, name), std::string::npos) << info.name;
  }
}

TEST(PenstockSchedule, ExplainsItself) {
  for (const char* arguments : {"--help", "help", "show --help", "show 1f1b --help"}) {
    const ToolResult result = run(arguments);
    EXPECT_EQ(result.status, 0);
    for (const char* word : {"list", "show NAME", "--ranks", "--micro-batches", "--chunks",
                             "--rank R", "--text", "Examples:"}) {
      EXPECT_NE(result.out.find(word), std::string::npos) << arguments << ": " << word;
    }
  }
}

TEST(PenstockSchedule, EndsWithStatus2AndSaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "a command is missing; expected list or show"},
      {"draw", "there is no command \"draw\"; expected list or show"},
      {"list all", "list takes no arguments"},
      {"show", "show needs the NAME of a schedule"},
      {"show gpipe", "expected one of 1f1b, inference, data_parallel"},
      {"show 1f1b --ranks 0", "pipeline.stages is 0; expected 1 or more"},
      {"show 1f1b --micro-batches=-1", "gradient_accumulation_steps is -1"},
      {"show 1f1b --chunks 2", "pipeline.chunks is 2; expected 1"},
      {"show 1f1b --rank 4", "pipe rank 4 does not exist; expected 0 to 3"},
      {"show 1f1b --ranks many", "--ranks"},
      {"show 1f1b --micro 3", "unrecognised option '--micro'"},
      {"show 1f1b inference", "too many positional options"},
      {"show data_parallel", "pipeline.stages is 4; expected 1"},
      {"show 1f1b --ranks 2000 --micro-batches 2000000000", "are more than 10000000"},
  };
  for (const auto& [arguments, message] : cases) {
    const ToolResult result = run(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_NE(result.err.find(message), std::string::npos) << arguments << ": " << result.err;
    EXPECT_NE(result.err.find("penstock-schedule --help"), std::string::npos) << arguments;
  }
}

TEST(PenstockSchedule, NoticesThatItsOutputIsLost) {
  const ToolResult result = run("list >/dev/full");
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("could not be written"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace penstock::tools
