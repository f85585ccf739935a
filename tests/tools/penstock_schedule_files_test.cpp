// penstock-schedule with files: tables and costs in, tables, pictures and traces out; and its
// figures.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedule/io/chrome_trace.h"
#include "schedule/io/costs_json.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

using nlohmann::json;

class PenstockScheduleFiles : public ::testing::Test {
 protected:
  PenstockScheduleFiles() { std::filesystem::create_directories(folder_); }
  ~PenstockScheduleFiles() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }

  std::string read(const std::string& name) const {
    std::ifstream file(path(name));
    EXPECT_TRUE(file) << name;
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static ToolResult run(const std::string& arguments) {
    return run_tool(PENSTOCK_SCHEDULE, arguments);
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("penstock_schedule_test_" + std::to_string(getpid()));
};

TEST_F(PenstockScheduleFiles, TablesGoOutAndIn) {
  const ToolResult out = run("convert 1f1b --ranks 2 --micro-batches 2");
  EXPECT_EQ(out.out, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const std::string table = write("1f1b.csv", out.out);
  const ToolResult show = run("show file:" + table);
  EXPECT_EQ(show.status, 0) << show.err;
  EXPECT_NE(show.out.find("rank 0  F0 F1 .  B0 .  B1 O\n"), std::string::npos) << show.out;
  EXPECT_EQ(run("convert file:" + table).out, out.out);
  EXPECT_EQ(run("verify file:" + table).status, 0);

  EXPECT_EQ(run("convert zbv --out " + path("zbv.csv")).status, 0);
  EXPECT_EQ(read("zbv.csv"), run("convert zbv").out);
  EXPECT_NE(run("verify file:" + path("zbv.csv")).out.find("P 4, M 8, v 2: ok"), std::string::npos);
}

TEST_F(PenstockScheduleFiles, MergesBackwardsAndPlacesTransfers) {
  const std::string table = write("split.csv", "0F0,0I0,0W0\n1F0,1I0,1W0\n");
  EXPECT_EQ(run("convert file:" + table + " --merge-backward").out, "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(run("convert file:" + table + " --merge-backward --placement=early").out,
            "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
}

// PyTorch's own test of its lowering has rows of so many actions for this schedule.
TEST_F(PenstockScheduleFiles, LowersAsManyActionsAsPyTorch) {
  const ToolResult result =
      run("convert zb1p --ranks 2 --micro-batches 8 --chunks 2 --merge-backward --placement=early");
  ASSERT_EQ(result.status, 0) << result.err;
  std::vector<std::ptrdiff_t> actions;
  std::istringstream rows(result.out);
  for (std::string row; std::getline(rows, row);) {
    actions.push_back(std::ranges::count(row, ',') + 1);
  }
  EXPECT_EQ(actions, (std::vector<std::ptrdiff_t>{80, 96}));
}

TEST_F(PenstockScheduleFiles, ReadsTheLettersOf2024) {
  const std::string table = write("old.csv", "0F0,0B0,0W0\n1F0,1B0,1W0\n");
  EXPECT_EQ(run("convert file:" + table).status, 1);  // W without I today
  EXPECT_EQ(run("convert --letters 2024 file:" + table).out, "0F0,0I0,0W0\n1F0,1I0,1W0\n");
  EXPECT_NE(run("convert --letters 1999 file:" + table).err.find("expected today or 2024"),
            std::string::npos);
}

TEST_F(PenstockScheduleFiles, EndsWithStatus1ForABadSchedule) {
  const std::string twice = write("twice.csv", "0F0,0F0,0B0\n");
  const ToolResult bad = run("verify file:" + twice);
  EXPECT_EQ(bad.status, 1);
  EXPECT_NE(bad.err.find("twice.csv: [csv] line 1, column 2: 0F0"), std::string::npos) << bad.err;

  // Rank 0 wants the backward of micro batch 1 before it has sent that micro batch.
  const std::string lock = write("lock.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  const ToolResult stuck = run("verify file:" + lock);
  EXPECT_EQ(stuck.status, 1);
  EXPECT_NE(stuck.out.find("rank 0, step 1, RecvGrad"), std::string::npos) << stuck.out;
  for (const char* command : {"show", "simulate", "compare"}) {
    const ToolResult result = run(std::string(command) + " file:" + lock);
    EXPECT_EQ(result.status, 1) << command;
    EXPECT_EQ(result.out, "") << command;
    EXPECT_NE(result.err.find("is not safe"), std::string::npos) << result.err;
  }
}

TEST_F(PenstockScheduleFiles, AFileBringsItsOwnSizes) {
  const std::string table = write("one.csv", "0F0,0B0\n");
  const ToolResult result = run("show --ranks 2 file:" + table);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("--ranks is given, but"), std::string::npos) << result.err;
  EXPECT_NE(run("show " + table).err.find(table + " is a file; expected file:" + table),
            std::string::npos);
  EXPECT_NE(run("show file:/no/such.csv").err.find("/no/such.csv cannot be read"),
            std::string::npos);
  EXPECT_EQ(run("show file:" + path("")).status, 2);  // a folder
}

// Makespans as published for F = I = W: PyTorch's orders, 4 ranks, 8 micro batches.
TEST_F(PenstockScheduleFiles, SimulatesPublishedFigures) {
  const std::pair<const char*, double> cases[] = {{"1f1b", 33.0},
                                                  {"interleaved_1f1b --chunks 2", 28.5},
                                                  {"interleaved_1f1b --chunks 4", 26.25},
                                                  {"zb_h1", 27.0},
                                                  {"zbv", 25.5},
                                                  {"dualpipev", 27.0},
                                                  {"dualpipev --overlap", 22.0}};
  for (const auto& [name, makespan] : cases) {
    const ToolResult result = run("simulate --json " + std::string(name));
    ASSERT_EQ(result.status, 0) << result.err;
    const json figures = json::parse(result.out);
    EXPECT_EQ(figures["makespan"], makespan) << name;
    EXPECT_EQ(figures["ranks"].size(), 4U);
  }
  const json figures = json::parse(run("simulate --json 1f1b").out);
  EXPECT_EQ(figures["bubble_ratio"], 0.375);
  EXPECT_EQ(figures["ranks"][1]["peak_activations"], 3);
  EXPECT_EQ(figures["ranks"][1]["messages"], 16);
  const std::string text = run("simulate 1f1b").out;
  EXPECT_NE(text.find("makespan 33, bubble 37.5 % of the busy time"), std::string::npos) << text;
}

TEST_F(PenstockScheduleFiles, TakesCostsFromAFile) {
  schedule::Costs costs;
  costs.stages = {{1.0, 2.0, 3.0, 8.0, 0.0}, {1.0, 2.0, 3.0, 8.0, 0.0}};
  costs.latency = 0.5;
  const std::string file = write("costs.json", schedule::to_json(costs));
  const std::string arguments = "simulate --json gpipe --ranks 2 --micro-batches 1 --costs " + file;
  // 1 + 0.5 + 1 + 5 + 0.5 + 5
  EXPECT_EQ(json::parse(run(arguments).out)["makespan"], 13.0);
  const ToolResult result = run("simulate gpipe --ranks 3 --costs " + file);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("costs of 2 stages"), std::string::npos) << result.err;
}

TEST_F(PenstockScheduleFiles, ComparesWhatCanDoIt) {
  const ToolResult result = run("compare --chunks 2");
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* row : {"1f1b              1  37.5 %        33                 4",
                          "zbv               2  6.25 %      25.5                 8"}) {
    EXPECT_NE(result.out.find(row), std::string::npos) << result.out;
  }
  EXPECT_NE(result.out.find("not data_parallel: "), std::string::npos);
  const ToolResult two = run("compare 1f1b gpipe --ranks 2");
  EXPECT_EQ(two.out.find("zbv"), std::string::npos) << two.out;
}

// What is found keeps to the limit, which no built-in schedule does here.
TEST_F(PenstockScheduleFiles, SearchesWithinMemory) {
  const ToolResult free = run("search --chunks 2 --effort 100000");
  EXPECT_EQ(free.status, 0) << free.err;
  EXPECT_NE(free.out.find("chosen"), std::string::npos) << free.out;
  EXPECT_EQ(free.out.find("too large"), std::string::npos) << free.out;
  const ToolResult tight =
      run("search --ranks 3 --micro-batches 6 --most-activations 2 --effort "
          "100000 --out " +
          path("found.csv"));
  EXPECT_EQ(tight.status, 0) << tight.err;
  EXPECT_NE(tight.out.find("too large"), std::string::npos) << tight.out;
  const json figures = json::parse(run("simulate --json file:" + path("found.csv")).out);
  for (const json& rank : figures["ranks"]) EXPECT_LE(rank["peak_activations"], 2);
  EXPECT_GE(figures["makespan"], 18.0);
  EXPECT_EQ(figures["num_micro_batches"], 6);
}

TEST_F(PenstockScheduleFiles, DrawsPicturesAndPages) {
  ASSERT_EQ(run("draw zb_h1 --out " + path("a.svg")).status, 0);
  EXPECT_TRUE(read("a.svg").starts_with("<svg "));
  EXPECT_NE(read("a.svg").find("zb_h1: P 4, M 8"), std::string::npos);
  ASSERT_EQ(run("draw 1f1b zbv --out " + path("a.html")).status, 0);
  EXPECT_NE(read("a.html").find("1f1b: P 4, M 8"), std::string::npos);
  EXPECT_NE(read("a.html").find("zbv: P 4, M 8, v 2"), std::string::npos);
}

TEST_F(PenstockScheduleFiles, DrawsAMeasuredTraceBesideItsPrediction) {
  ASSERT_EQ(run("simulate 1f1b --ranks 2 --trace " + path("t.json")).status, 0);
  const schedule::Trace trace = schedule::trace_from_chrome(read("t.json"), "t.json");
  EXPECT_EQ(trace.title, "1f1b: P 2, M 8");
  EXPECT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(schedule::summarize(trace).makespan, 27.0);
  ASSERT_EQ(
      run("draw 1f1b --ranks 2 --measured " + path("t.json") + " --out " + path("b.html")).status,
      0);
  const std::string page = read("b.html");
  EXPECT_NE(
      page.find("\"title\":\"1f1b: P 2, M 8\"", page.find("\"title\":\"1f1b: P 2, M 8\"") + 1),
      std::string::npos);
  // Predicted from what was measured: the same again.
  const ToolResult again = run("simulate --json 1f1b --ranks 2 --costs trace:" + path("t.json"));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_NEAR(json::parse(again.out)["makespan"], 27.0, 1e-6);
  const ToolResult none =
      run("draw --measured " + path("t.json") + " --replica 1 --out " + path("c.svg"));
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("has no rank of replica 1"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace penstock::tools
