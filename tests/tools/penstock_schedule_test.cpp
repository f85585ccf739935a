// What penstock-schedule prints for schedules that it knows, and how it ends.
#include <array>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "schedule/text.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

ToolResult run(const std::string& arguments) {
  return run_tool(PENSTOCK_SCHEDULE, arguments);
}

TEST(PenstockSchedule, ShowsTheGridOfAllRanksWithPhasesAndIdleCells) {
  const ToolResult result = run("show 1f1b --ranks 2 --micro-batches 3");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(
      result.out,
      "1f1b: P 2, M 3\n"
      "\n"
      "time    0  1  2  3  4  5  6  7  8\n"
      "rank 0  F0 F1 .  B0 F2 B1 .  B2 O\n"
      "rank 1  .  F0 B0 F1 B1 F2 B2 .  O\n"
      "\n"
      "        warm-up  steady  cool-down  idle cells  peak  buffers\n"
      "rank 0        2       2          2           2     2        2\n"
      "rank 1        1       4          1           2     1        1\n"
      "\n"
      "idle cells: 4 of 16 (25 %)\n"
      "F forward, B backward (I its input part, W its weight part), = goes on, O optimizer "
      "step, . idle\n"
      "warm-up: passes before the first backward; cool-down: passes after the last forward\n");
}

TEST(PenstockSchedule, ShowsChunksAndSplitBackwards) {
  const ToolResult result = run("show zbv --ranks 2 --micro-batches 3");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("rank 1  .    F0c0 F0c1 F1c0 F1c1 I0c1 W0c1 "), std::string::npos)
      << result.out;
}

TEST(PenstockSchedule, ShowsWholeBackwardsAsLongAsTheirParts) {
  const ToolResult result = run("show dualpipev --ranks 2 --micro-batches 4");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find(" B0c1 = "), std::string::npos) << result.out;
}

TEST(PenstockSchedule, ShowsOneRankOfTheGrid) {
  const ToolResult result = run("show inference --ranks 3 --micro-batches 2 --rank 1");
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("time    0 1  2\nrank 1  . F0 F1\n"), std::string::npos) << result.out;
}

TEST(PenstockSchedule, PrintsTextThatTheLibraryReadsBack) {
  const ToolResult one = run("show 1f1b --ranks 3 --micro-batches 5 --text --rank 1");
  EXPECT_EQ(one.status, 0);
  const auto pipe = schedule::make_pipe("1f1b", {.ranks = 3, .micro_batches = 5});
  EXPECT_EQ(one.out, schedule::to_text(*pipe[1]));
  EXPECT_GT(schedule::parse_text(one.out).size(), 10U);

  const std::string all = "rank 0\n" + schedule::to_text(*pipe[0]) + "\nrank 1\n" +
                          schedule::to_text(*pipe[1]) + "\nrank 2\n" + schedule::to_text(*pipe[2]);
  EXPECT_EQ(run("show 1f1b --ranks 3 --micro-batches 5 --text").out, all);
  EXPECT_EQ(run("convert 1f1b --ranks 3 --micro-batches 5 --to text").out, all);
}

TEST(PenstockSchedule, ShowsOneRankOfAHugePipe) {
  const ToolResult result = run("show 1f1b --ranks 1024 --micro-batches 4096 --text --rank 1000");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("OptimizerStep"), std::string::npos);
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

TEST(PenstockSchedule, VerifiesWhatItKnows) {
  const ToolResult result = run("verify zbv --ranks 4 --micro-batches 8");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("zbv: P 4, M 8, v 2: ok")) << result.out;
  EXPECT_EQ(run("verify 1f1b --ranks 8 --micro-batches 3").status, 0);
}

TEST(PenstockSchedule, ExplainsItself) {
  for (const char* arguments : {"--help", "help"}) {
    const ToolResult result = run(arguments);
    EXPECT_EQ(result.status, 0);
    for (const char* word : {"list", "show", "verify", "simulate", "draw", "compare", "search",
                             "convert", "Exit status", "Examples:"}) {
      EXPECT_NE(result.out.find(word), std::string::npos) << word;
    }
  }
  for (const char* command : {"show", "verify", "simulate", "draw", "compare", "convert"}) {
    const ToolResult result = run(std::string(command) + " --help");
    EXPECT_EQ(result.status, 0) << command;
    for (const char* word :
         {"NAME", "--ranks", "--micro-batches", "--chunks", "--stage-map", "file:PATH"}) {
      EXPECT_NE(result.out.find(word), std::string::npos) << command << ": " << word;
    }
    EXPECT_EQ(result.out.find("--name"), std::string::npos) << command;
  }
}

TEST(PenstockSchedule, EndsWithStatus2AndSaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "a command is missing; expected list, show"},
      {"paint", "there is no command \"paint\"; expected list, show"},
      {"list all", "too many positional options"},
      {"show", "NAME is missing; expected penstock-schedule show NAME"},
      {"show 1F1B", "there is no schedule named \"1F1B\"; expected one of 1f1b, gpipe"},
      {"show 1f1b --ranks 0", "pipeline.stages is 0; expected 1 or more"},
      {"show 1f1b --micro-batches=-1", "gradient_accumulation_steps is -1"},
      {"show 1f1b --chunks 2", "pipeline.chunks is 2; expected 1"},
      {"show 1f1b --rank 4", "--rank is 4; expected 0 to 3"},
      {"show 1f1b --rank 4 --text", "--rank is 4; expected 0 to 3"},
      {"show 1f1b --ranks many", "--ranks"},
      {"show 1f1b --micro 3", "unrecognised option '--micro'"},
      {"show 1f1b inference", "too many positional options"},
      {"show data_parallel", "pipeline.stages is 4; expected 1"},
      {"show gpipe --stage-map 0,1,x", "--stage-map is \"0,1,x\"; expected loop, v, or"},
      {"show gpipe --ranks 2 --stage-map 0,1,", "--stage-map is \"0,1,\"; expected loop, v, or"},
      {"show gpipe --stage-map 0,2 --ranks 3", "rank"},
      {"verify dualpipev --micro-batches 7", "gradient_accumulation_steps is 7"},
      {"simulate 1f1b --forward -1", "stages[0].forward is -1"},
      {"simulate 1f1b --costs /no/such/file", "/no/such/file cannot be read"},
      {"simulate 1f1b --costs x.json --latency 3", "--costs and --latency are both given"},
      {"draw --out x.svg", "nothing to draw"},
      {"draw 1f1b --out x.png", "--out is \"x.png\"; expected a file that ends in .svg or .html"},
      {"draw 1f1b gpipe --out x.svg", "an .svg holds one picture and there are 2"},
      {"draw 1f1b --out /no/such/folder/x.svg", "/no/such/folder/x.svg could not be written"},
      {"draw 1f1b", "--out"},
      {"compare 1f1b zbv dualpipev --micro-batches 4", "gradient_accumulation_steps is 4"},
      {"search --effort=-1", "--effort is -1; expected 0 or more"},
      {"search --ranks 2 --chunks 2 --most-activations 1", "no schedule fits the memory limit"},
      {"search --ranks 0", "pipeline.stages is 0"},
      {"search 1f1b", "too many positional options"},
      {"convert 1f1b --placement soon", "--placement is \"soon\"; expected none, early or late"},
      {"convert 1f1b --to xml", "--to is \"xml\"; expected csv or text"},
      {"convert 1f1b --to text --placement late", "--placement late is for CSV"},
  };
  for (const auto& [arguments, message] : cases) {
    const ToolResult result = run(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_NE(result.err.find(message), std::string::npos) << arguments << ": " << result.err;
    EXPECT_NE(result.err.find("penstock-schedule --help"), std::string::npos) << arguments;
  }
}

TEST(PenstockSchedule, RefusesPipesThatAreTooLarge) {
  const std::string size = " --ranks 8 --micro-batches 2000000";
  for (const char* command : {"show 1f1b", "verify 1f1b", "simulate 1f1b", "convert 1f1b",
                              "compare 1f1b", "draw 1f1b --out x.svg",
                              "show 1f1b --ranks 2147483647 --chunks 2147483647 --rank 0 --text"}) {
    const ToolResult result = run(command + (std::string(command).ends_with("text") ? "" : size));
    EXPECT_EQ(result.status, 2) << command;
    EXPECT_NE(result.err.find("; expected at most 10000000; take fewer"), std::string::npos)
        << command << ": " << result.err;
  }
  // What is compared counts together.
  EXPECT_EQ(run("compare 1f1b gpipe --ranks 2 --micro-batches 1000").status, 0);
  const ToolResult both = run("compare 1f1b gpipe --ranks 6 --micro-batches 1000000");
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.err.find("of all schedules together, are 12000000"), std::string::npos)
      << both.err;
}

TEST(PenstockSchedule, NoticesThatItsOutputIsLost) {
  for (const char* arguments : {"list >/dev/full", "simulate zbv >/dev/full"}) {
    const ToolResult result = run(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("could not be written"), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace penstock::tools
