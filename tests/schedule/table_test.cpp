// Tables: checked by themselves, hashed, read out of streams.
#include "schedule/table.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "schedule/rules.h"
#include "tests/schedule/streams.h"
#include "tests/schedule/tables.h"

namespace penstock::schedule {
namespace {

Table table_of_words(const StageMap& map, int micro_batches, std::vector<std::string> rows) {
  Table table{map, micro_batches, true, {}};
  for (const std::string& row : rows) table.rows.push_back(row_of_words(row));
  return table;
}

// Two ranks, two micro batches, both ways to go backward; the rows say what differs.
std::string problem(std::vector<std::string> rows) {
  return error_of([&] { check_table(table_of_words(StageMap::loop(2, 1), 2, std::move(rows))); });
}

TEST(Table, CheckAcceptsWholeTables) {
  EXPECT_EQ(problem({"0F0 0F1 0B0 0B1", "1F0 1I0 1F1 1W0 1B1"}), "");
  // In any order, overlapped, with idle cells.
  EXPECT_EQ(problem({"0F1 (0F0;0B1)OVERLAP_F_B 0B0", "1F1  1B1   1F0 1B0"}), "");
  Table forward = table_of_words(StageMap::v(2, 2), 1, {"0F0 3F0", "1F0 2F0"});
  forward.trains = false;
  EXPECT_NO_THROW(check_table(forward));
}

TEST(Table, CheckNamesRankCellAndAction) {
  const std::string good = "1F0 1F1 1B0 1B1";
  EXPECT_EQ(problem({"0F0 0F1 0B0", good}),
            "[table] rank 0, cell 1: 0F1 has no backward; expected a full one (B), or its two "
            "parts (I and W)");
  EXPECT_EQ(
      problem({"0F0 0B0 0F0 0F1 0B1", good}),
      "[table] rank 0, cell 2: 0F0 was there before, in rank 0, cell 0; expected each action once");
  EXPECT_EQ(
      problem({"0F0 0B0 0F1 0B0 0B1", good}),
      "[table] rank 0, cell 3: 0B0 was there before, in rank 0, cell 1; expected each action once");
  EXPECT_EQ(problem({"0B0 0F0 0F1 0B1", good}),
            "[table] rank 0, cell 0: 0B0 stands before its forward; expected it after");
  EXPECT_EQ(problem({"0B0 0F1 0B1", good}),
            "[table] rank 0, cell 0: 0B0 has no forward on this rank; expected one before it");
  EXPECT_EQ(problem({"0F1 0B1", good}),
            "[table] rank 0 has no 0F0; expected every micro batch, 0 to 1, on every stage");
  EXPECT_EQ(problem({"0F0 0B0", good}),
            "[table] rank 0 has no 0F1; expected every micro batch, 0 to 1, on every stage");
  EXPECT_EQ(problem({"0F0 0I0 0F1 0B1", good}),
            "[table] rank 0, cell 1: 0I0 has no weight part (W); expected one after it");
  EXPECT_EQ(problem({"0F0 0W0 0F1 0B1", good}),
            "[table] rank 0, cell 1: 0W0 has no input part (I); expected one before it");
  EXPECT_EQ(problem({"0F0 0W0 0I0 0F1 0B1", good}),
            "[table] rank 0, cell 1: 0W0 stands before its input part (I); expected it after");
  EXPECT_EQ(problem({"0F0 0I0 0B0 0W0 0F1 0B1", good}),
            "[table] rank 0, cell 1: 0I0 is a part of a backward that is also there in full, in "
            "rank 0, cell 2; expected B, or I and W");
  EXPECT_EQ(problem({"0F0 0F1 0F2 0B0 0B1", good}),
            "[table] rank 0, cell 2: 0F2 names a micro batch that does not exist; expected 0 to 1");
  EXPECT_EQ(problem({"0F0 2F1 0B0 0B1", good}),
            "[table] rank 0, cell 1: 2F1 names a stage that does not exist; expected 0 to 1");
  EXPECT_EQ(problem({"0F0 1F1 0B0 0B1", good}),
            "[table] rank 0, cell 1: 1F1 is of a stage of rank 1; expected it in that rank's row, "
            "or another stage map");
  EXPECT_EQ(problem({good}),
            "[table] it has 1 rows; expected one for each of the 2 ranks of the stage map 0,1");

  const auto one_rank = [](const char* row) {
    return error_of([&] { check_table(table_of_words(StageMap::loop(1, 2), 1, {row})); });
  };
  EXPECT_EQ(one_rank("0F0 1F0 1I0 0B0 1W0"), "");
  EXPECT_EQ(
      one_rank("1F0 0F0 1B0 0B0"),
      "[table] rank 0, cell 0: 1F0 needs what 0F0 makes, in rank 0, cell 1; expected it after");
  EXPECT_EQ(
      one_rank("0F0 1F0 0I0 1I0 0W0 1W0"),
      "[table] rank 0, cell 2: 0I0 needs what 1I0 makes, in rank 0, cell 3; expected it after");

  Table forward = table_of_words(StageMap::loop(1, 1), 1, {"0F0 0B0"});
  forward.trains = false;
  EXPECT_EQ(error_of([&] { check_table(forward); }),
            "[table] rank 0, cell 1: 0B0 is a backward in a table that is forward only");
  forward.micro_batches = 0;
  EXPECT_EQ(error_of([&] { check_table(forward); }),
            "[table] it has 0 micro batches; expected 1 or more");
}

// An action that no constructor refuses, with numbers that name nothing.
TEST(Table, CheckTakesNoNumberForGranted) {
  Table table = table_of_words(StageMap::loop(1, 1), 1, {""});
  table.rows[0] = {Action{ActionKind::kForward, StageId{}, MicroBatchId{0}}};
  EXPECT_THROW(check_table(table), ScheduleError);
  table.rows[0] = {Action{ActionKind::kForward, StageId{0}, MicroBatchId{}}};
  EXPECT_THROW(check_table(table), ScheduleError);
}

TEST(Table, SourcesGiveTheRowsOfTheirTable) {
  const Table table = make_table(zb1p_rows({.ranks = 3, .micro_batches = 4, .chunks = 2}));
  const RowSource source = source_of(table);
  EXPECT_EQ(source.map, table.map);
  EXPECT_EQ(source.micro_batches, 4);
  EXPECT_TRUE(source.trains);
  EXPECT_EQ(make_table(source).rows, table.rows);
  EXPECT_EQ(error_of([&] { source.row(PipeRank{3}); }),
            "[table] it has no row for rank 3; expected 0 to 2");
}

TEST(Table, HashTellsTablesApartButNotIdleCells) {
  const std::vector<std::string> rows = {"0F0 0F1 0B0 0B1", "1F0 1I0 1F1 1W0 1B1"};
  const StageMap map = StageMap::loop(2, 1);
  const std::uint64_t expected = hash(table_of_words(map, 2, rows));
  // FNV-1a of 2, 0, 1, 2 as eight bytes each, then "0F0,0F1,0B0,0B1,\n1F0,1I0,1F1,1W0,1B1,\n".
  EXPECT_EQ(expected, 5074676175018039123u);
  EXPECT_EQ(hash(table_of_words(map, 2, {"0F0  0F1 0B0 0B1", rows[1] + " "})), expected);
  EXPECT_NE(hash(table_of_words(map, 3, rows)), expected);
  EXPECT_NE(hash(table_of_words(map, 2, {rows[1], rows[0]})), expected);
  EXPECT_NE(hash(table_of_words(map, 2, {rows[0] + " 1F0", rows[1].substr(4)})), expected);
  EXPECT_NE(hash(table_of_words(StageMap::loop(1, 2), 2, rows)), expected);
}

TEST(Table, IsWhatStreamsCompute) {
  const Table table = table_of(make_pipe("inference", {.ranks = 2, .micro_batches = 3}));
  EXPECT_FALSE(table.trains);
  EXPECT_EQ(table.micro_batches, 3);
  EXPECT_EQ(to_words(table.rows[1]), "1F0 1F1 1F2");
  EXPECT_TRUE(table_of(make_pipe("data_parallel", {.micro_batches = 2})).trains);
}

// One rank with a step of a forward and a backward, and one of both parts of a backward.
class TwoSteps final : public Schedule {
 public:
  explicit TwoSteps(const ScheduleArgs& args) : Schedule("two_steps", args) {}
  std::int64_t num_steps() const override { return 2; }

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override {
    const auto add = [&out](Opcode opcode, int chunk, int m) {
      out.push_back(instruction(opcode, ChunkId{chunk}, MicroBatchId{m}, BufferId{0}));
    };
    if (step == 0) {
      add(Opcode::kRecvGrad, 0, 1);
      add(Opcode::kForwardPass, 1, 0);
      add(Opcode::kBackwardPass, 0, 1);
      add(Opcode::kSendActivation, 1, 0);
    } else {
      add(Opcode::kBackwardInput, 0, 0);
      add(Opcode::kBackwardWeight, 0, 0);
      out.push_back(instruction(Opcode::kOptimizerStep));
    }
  }
  int do_num_pipe_buffers(ChunkId) const override { return 1; }
};

TEST(Table, OfStreamsOverlapsAForwardAndABackwardOfOneStep) {
  std::vector<std::unique_ptr<Schedule>> pipe;
  pipe.push_back(std::make_unique<TwoSteps>(ScheduleArgs{.micro_batches = 2, .chunks = 2}));
  EXPECT_EQ(to_words(table_of(pipe).rows[0]), "(1F0;0B1)OVERLAP_F_B 0I0 0W0");
  EXPECT_EQ(to_words(table_of(pipe, false).rows[0]), "1F0 0B1 0I0 0W0");
}

TEST(Table, OfStreamsNeedsThoseOfOnePipeInRankOrder) {
  std::vector<std::unique_ptr<Schedule>> pipe;
  const auto refused = [&pipe] { return error_of([&pipe] { table_of(pipe); }); };
  const auto add = [&pipe](int rank, int micro_batches) {
    pipe.push_back(make_schedule(
        "1f1b", {.ranks = 2, .micro_batches = micro_batches, .rank = PipeRank{rank}}));
  };
  EXPECT_EQ(refused(), "[pipe] there are no streams; expected one per rank");
  add(0, 4);
  EXPECT_EQ(refused(), "[pipe] there are 1 streams; expected one for each of the 2 ranks");
  add(0, 4);
  EXPECT_EQ(refused(), "[pipe] stream 1 is that of rank 0; expected all ranks in rank order");
  pipe.pop_back();
  add(1, 5);
  EXPECT_EQ(
      refused(),
      "[pipe] stream 1 has 5 micro batches and the stage map 0,1; expected those of rank 0: 4 "
      "and 0,1");
}

}  // namespace
}  // namespace penstock::schedule
