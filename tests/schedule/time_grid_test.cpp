// The time grid of the two textbook schedules, and the uniform stage assignment.
#include "schedule/time_grid.h"

#include <string>

#include <gtest/gtest.h>

#include "schedule/io/time_grid_json.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

constexpr auto kGPipe = TimeGridKind::kGPipe;
constexpr auto k1F1B = TimeGridKind::kOneForwardOneBackward;

// "F0 F1 . B0": a stage's cells in time order.
std::string row(const TimeGrid& grid, int stage) {
  std::string out;
  for (const TimeGridCell& cell : grid.steps(StageId{stage})) {
    if (!out.empty()) out += ' ';
    if (cell.op == TimeGridOp::kIdle) {
      out += '.';
    } else {
      out += name(cell.op).front() + std::to_string(cell.microbatch.value);
    }
  }
  return out;
}

TEST(TimeGrid, GPipeRunsAllForwardsFirst) {
  const TimeGrid grid(kGPipe, 3, 2);
  EXPECT_EQ(row(grid, 0), "F0 F1 . . . . B0 B1");
  EXPECT_EQ(row(grid, 1), ". F0 F1 . . B0 B1 .");
  EXPECT_EQ(row(grid, 2), ". . F0 F1 B0 B1 . .");
}

TEST(TimeGrid, OneForwardOneBackwardTakesTurns) {
  const TimeGrid grid(k1F1B, 3, 4);
  EXPECT_EQ(row(grid, 0), "F0 F1 F2 . . B0 F3 B1 . B2 . B3");
  EXPECT_EQ(row(grid, 1), ". F0 F1 . B0 F2 B1 F3 B2 . B3 .");
  EXPECT_EQ(row(grid, 2), ". . F0 B0 F1 B1 F2 B2 F3 B3 . .");
}

// The time at which a stage runs an op of a micro batch; fails unless it does so exactly once.
int time_of(const TimeGrid& grid, int stage, TimeGridOp op, int microbatch) {
  int found = -1;
  for (const TimeGridCell& cell : grid.steps(StageId{stage})) {
    if (cell.op != op || cell.microbatch != MicroBatchId{microbatch}) continue;
    EXPECT_EQ(found, -1) << "twice on stage " << stage << ": " << name(op) << microbatch;
    found = cell.time;
  }
  EXPECT_NE(found, -1) << "not on stage " << stage << ": " << name(op) << microbatch;
  return found;
}

TEST(TimeGrid, IsCausalAndAsLongAsTheFormulasSay) {
  for (const TimeGridKind kind : {kGPipe, k1F1B}) {
    for (int s = 1; s <= 6; ++s) {
      for (int m = 1; m <= 13; ++m) {
        SCOPED_TRACE(std::string(name(kind)) + " " + std::to_string(s) + " " + std::to_string(m));
        const TimeGrid grid(kind, s, m);
        EXPECT_EQ(grid.total_steps(), 2 * (s + m - 1));
        EXPECT_EQ(grid.bubble_steps(), 2 * s * (s - 1));
        EXPECT_DOUBLE_EQ(grid.bubble_ratio(), (s - 1.0) / (s + m - 1.0));
        for (int microbatch = 0; microbatch < m; ++microbatch) {
          for (int stage = 0; stage < s; ++stage) {
            const int forward = time_of(grid, stage, TimeGridOp::kForward, microbatch);
            const int backward = time_of(grid, stage, TimeGridOp::kBackward, microbatch);
            EXPECT_LT(forward, backward);
            if (stage + 1 == s) continue;
            EXPECT_LT(forward, time_of(grid, stage + 1, TimeGridOp::kForward, microbatch));
            EXPECT_GT(backward, time_of(grid, stage + 1, TimeGridOp::kBackward, microbatch));
          }
        }
      }
    }
  }
}

// What tells the two kinds apart: how many micro batches a stage holds between F and B.
TEST(TimeGrid, OneForwardOneBackwardHoldsAtMostAsManyMicroBatchesAsStagesAreBehind) {
  for (const TimeGridKind kind : {kGPipe, k1F1B}) {
    const TimeGrid grid(kind, 4, 9);
    for (int stage = 0; stage < 4; ++stage) {
      int held = 0;
      int most = 0;
      for (const TimeGridCell& cell : grid.steps(StageId{stage})) {
        held += cell.op == TimeGridOp::kForward;
        held -= cell.op == TimeGridOp::kBackward;
        most = std::max(most, held);
      }
      EXPECT_EQ(most, kind == kGPipe ? 9 : 4 - stage);
    }
  }
}

TEST(TimeGrid, CutsColumns) {
  const TimeGrid grid(k1F1B, 2, 1);  // F0 . . B0 / . F0 B0 .
  const std::vector<TimeGridCell> column = grid.at_time(2);
  ASSERT_EQ(column.size(), 2U);
  EXPECT_EQ(column[0], (TimeGridCell{StageId{0}, 2, TimeGridOp::kIdle, {}}));
  EXPECT_EQ(column[1], (TimeGridCell{StageId{1}, 2, TimeGridOp::kBackward, MicroBatchId{0}}));
  EXPECT_TRUE(grid.at_time(4).empty());
  EXPECT_TRUE(grid.at_time(-1).empty());
}

TEST(TimeGrid, IsEmptyWhenDefault) {
  const TimeGrid empty;
  EXPECT_EQ(empty.num_stages(), 0);
  EXPECT_EQ(empty.total_steps(), 0);
  EXPECT_EQ(empty.bubble_steps(), 0);
  EXPECT_EQ(empty.bubble_ratio(), 0.0);
  EXPECT_TRUE(empty.at_time(0).empty());
}

TEST(TimeGrid, RefusesWhatIsNoPipe) {
  const auto fault = [](int s, int m) { return error_of([&] { TimeGrid(kGPipe, s, m); }); };
  EXPECT_EQ(fault(0, 4), "[schedule::time_grid] num_stages is 0; expected 1 or more");
  EXPECT_EQ(fault(4, 0), "[schedule::time_grid] num_microbatches is 0; expected 1 or more");
  EXPECT_EQ(fault(-1, 4), "[schedule::time_grid] num_stages is -1; expected 1 or more");
  EXPECT_NE(fault(2, 2147483647).find("expected at most 10000000 cells"), std::string::npos);
  const TimeGrid grid(kGPipe, 2, 2);
  EXPECT_NE(error_of([&] { grid.steps(StageId{2}); }).find("stage 2 does not exist"),
            std::string::npos);
  EXPECT_NE(error_of([&] { grid.steps(StageId{}); }).find("expected 0 to 1"), std::string::npos);
}

TEST(StageAssignment, GivesTheFirstStagesOneLayerMore) {
  const StageAssignment uniform = StageAssignment::uniform(10, 4);
  EXPECT_EQ(uniform.num_stages(), 4);
  EXPECT_EQ(uniform.layers_per_stage(), (std::vector<int>{3, 3, 2, 2}));
  EXPECT_EQ(uniform.layers_in_stage(StageId{1}), (std::vector<int>{3, 4, 5}));
  EXPECT_TRUE(uniform.layers_in_stage(StageId{4}).empty());
  EXPECT_TRUE(uniform.layers_in_stage(StageId{}).empty());
  EXPECT_EQ(uniform.stage_of(5), StageId{1});
  EXPECT_EQ(uniform.stage_of(9), StageId{3});
  EXPECT_EQ(uniform.stage_of(10), StageId{});
  EXPECT_EQ(uniform.stage_of(-1), StageId{});
  EXPECT_EQ(StageAssignment::uniform(3, 3).layers_per_stage(), (std::vector<int>{1, 1, 1}));
}

TEST(StageAssignment, RefusesStagesWithoutLayers) {
  EXPECT_NE(error_of([] {
              StageAssignment::uniform(3, 4);
            }).find("3 layers cannot fill 4 stages; expected at least one layer"),
            std::string::npos);
  EXPECT_NE(error_of([] { StageAssignment::uniform(3, 0); }).find("num_stages is 0"),
            std::string::npos);
  const auto fault = [](std::vector<StageId> stages, int n) {
    return error_of([&] { StageAssignment(stages, n); });
  };
  const StageId a{0}, b{1}, c{2};
  EXPECT_NE(fault({a, c}, 3).find("assignments[1] is 2"), std::string::npos);
  EXPECT_NE(fault({a, b, a}, 2).find("assignments[2] is 0"), std::string::npos);
  EXPECT_NE(fault({a, b}, 1).find("assignments[1] is 1"), std::string::npos);
  EXPECT_NE(fault({StageId{}}, 1).find("assignments[0] is -1"), std::string::npos);
  EXPECT_NE(fault({a, b}, 3).find("end with stage 1"), std::string::npos);
  EXPECT_NE(fault({}, 1).find("end with stage -1"), std::string::npos);
}

// --- JSON

TEST(TimeGridJson, SaysEveryName) {
  EXPECT_EQ(to_json(TimeGrid(kGPipe, 1, 1)),
            R"({"kind":"GPipe","num_stages":1,"num_microbatches":1,"total_steps":2,)"
            R"("bubble_steps":0,"bubble_ratio":0.0,"steps":[[)"
            R"({"stage":0,"time":0,"op":"Forward","microbatch":0},)"
            R"({"stage":0,"time":1,"op":"Backward","microbatch":0}]]})");
  EXPECT_NE(
      to_json(TimeGrid(k1F1B, 2, 1)).find(R"({"stage":0,"time":1,"op":"Idle","microbatch":null})"),
      std::string::npos);
  EXPECT_EQ(to_json(StageAssignment::uniform(3, 2)), R"({"assignments":[0,0,1],"num_stages":2})");
}

TEST(TimeGridJson, IsReadBack) {
  for (const TimeGridKind kind : {kGPipe, k1F1B}) {
    for (int s = 1; s <= 4; ++s) {
      for (int m = 1; m <= 7; ++m) {
        const TimeGrid grid(kind, s, m);
        EXPECT_EQ(time_grid_from_json(to_json(grid), "grid"), grid);
      }
    }
  }
  const StageAssignment uneven = StageAssignment::uniform(11, 4);
  EXPECT_EQ(stage_assignment_from_json(to_json(uneven), "stages"), uneven);
}

// The text of a good grid, with one part replaced.
std::string damaged(const std::string& part, const std::string& by) {
  std::string text = to_json(TimeGrid(k1F1B, 2, 1));
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), by);
}

TEST(TimeGridJson, ErrorsNameFieldValueAndExpectation) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {R"("kind":"OneForwardOneBackward")", R"("kind":"Interleaved")",
       R"(grid.json: kind is "Interleaved"; expected "GPipe" or "OneForwardOneBackward")"},
      {R"("kind":"OneForwardOneBackward")", R"("kind":1)", "grid.json: kind is 1; expected a str"},
      {R"("num_stages":2)", R"("num_stages":0)", "num_stages is 0; expected an integer from 1"},
      {R"("num_stages":2)", R"("num_stages":2.5)", "num_stages is 2.5; expected an integer"},
      {R"("num_stages":2)", R"("num_stages":18446744073709551615)", "expected an integer from 1"},
      {R"("num_stages":2)", R"("num_stages":2000000000)", "total_steps is 4; expected 4000000000"},
      {R"("num_stages":2)", R"("num_stages":true)", "num_stages is true; expected an integer"},
      {R"("num_stages":2,)", "", "grid.json: num_stages is missing"},
      {R"("num_stages":2)", R"("num_stages":2,"num_stages":2)", R"(duplicate key "num_stages")"},
      {R"("num_stages":2)", R"("num_stages":2,"stages":2)", "stages is 2, which is no known key"},
      {R"("total_steps":4)", R"("total_steps":5)", "total_steps is 5; expected 4"},
      {R"("bubble_steps":4)", R"("bubble_steps":3)", "bubble_steps is 3; expected 4"},
      {R"("bubble_ratio":0.5)", R"("bubble_ratio":0.25)", "bubble_ratio is 0.25; expected 0.5"},
      {R"("steps":[[)", R"("steps":[[],[)", "expected 2 arrays, one for each of num_stages"},
      {R"("steps":[[)", R"("steps":[[{},)", "expected 4 cells, one for each of total_steps"},
      {R"("op":"Idle")", R"("op":"idle")", R"(steps[0][1].op is "idle"; expected "Idle")"},
      {R"("microbatch":null)", R"("microbatch":0)", "steps[0][1].microbatch is 0; expected null"},
      {R"("time":1)", R"("time":2)", "grid.json: steps[0][1].time is 2; expected 1"},
      {R"({"stage":0,)", R"({"stage":0,"cost":1,)", "steps[0][0].cost is 1, which is no known key"},
      {R"({"stage":0,)", R"({)", "steps[0][0].stage is missing"},
  };
  for (const auto& [part, by, message] : cases) {
    const std::string text = damaged(part, by);
    const std::string error = error_of([&] { time_grid_from_json(text, "grid.json"); });
    EXPECT_NE(error.find(message), std::string::npos) << by << ": " << error;
  }
}

TEST(TimeGridJson, RefusesWhatIsNoGridAtAll) {
  const std::string deep(100'000, '[');
  const std::string bad_utf8 = "{\"kind\": \"\xff\xfe\"}";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"), std::string("{}"), std::string("null"),
        std::string("1e999"), std::string("{} {}"), deep, bad_utf8, std::string(1, '\0')}) {
    const std::string error = error_of([&] { time_grid_from_json(text, "grid.json"); });
    EXPECT_TRUE(error.starts_with("[schedule::json] grid.json: ")) << error;
    EXPECT_LT(error.size(), 400U);
  }
}

TEST(StageAssignmentJson, IsChecked) {
  const auto error = [](const char* text) {
    return error_of([&] { stage_assignment_from_json(text, "a.json"); });
  };
  EXPECT_NE(error(R"({"assignments":[0,2],"num_stages":3})").find("assignments[1] is 2"),
            std::string::npos);
  EXPECT_NE(error(R"({"assignments":[0,"1"],"num_stages":2})")
                .find(R"(a.json: assignments[1] is "1"; expected an integer)"),
            std::string::npos);
  EXPECT_NE(
      error(R"({"assignments":0,"num_stages":2})").find("assignments is 0; expected an array"),
      std::string::npos);
  EXPECT_NE(error(R"({"assignments":[0],"num_stages":2147483647})").find("end with stage 0"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::schedule
