// CSV files: read strictly, written back, with PyTorch's own examples.
#include "schedule/csv.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/fnv.h"
#include "schedule/rules.h"
#include "tests/schedule/streams.h"
#include "tests/schedule/tables.h"

namespace penstock::schedule {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// "a,b" for the cells of "a b".
std::string csv(std::string words) {
  std::ranges::replace(words, ' ', ',');
  return words;
}

std::string problem(const std::string& text, const CsvReadOptions& options = {}) {
  return error_of([&] { parse_csv(text, options); });
}

Table zb1p_2_ranks() {
  return make_table(zb1p_rows({.ranks = 2, .micro_batches = 8, .chunks = 2}));
}

TEST(Csv, MergedZeroBubbleWithEarlyTransfersIsPyTorchsFile) {
  const std::string text = to_csv(merge_backward(zb1p_2_ranks()), CsvTransfers::kEarly);
  const auto cells = [](const std::string& line) { return 1 + std::ranges::count(line, ','); };
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(cells(lines[0]), 80);  // 16 F, 16 B, 24 sends, 24 receives
  EXPECT_EQ(cells(lines[1]), 96);  // 16 F, 16 I, 16 W, 24 sends, 24 receives
  // FNV-1a of PyTorch's zb1p_2rank_2stagep_comms.csv, in its form with I, of 2025.
  Fnv fnv;
  fnv.add(text);
  EXPECT_EQ(fnv.value(), 5199212701074876133u);
}

TEST(Csv, EarlyTransfersTakeIdleCellsForTurnsAsPyTorchDoes) {
  const auto with_transfers = [](const std::string& text, CsvLetters letters) {
    return lines_of(to_csv(parse_csv(text, {.letters = letters}), CsvTransfers::kEarly));
  };
  const CsvLetters today = CsvLetters::kToday;
  EXPECT_EQ(with_transfers("0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n", today)[1],
            csv("1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1"));
  EXPECT_EQ(with_transfers("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", today)[1],
            csv("1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1"));
  // A V; B is the input part.
  const std::string line = with_transfers(csv("0F0 0F1  3F0 3B0 3F1 3B1 0B0 3W0 0B1 3W1 0W0 0W1\n"
                                              " 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 2W0 2W1 1W0 1W1\n"),
                                          CsvLetters::k2024)[1];
  EXPECT_TRUE(line.starts_with(csv("1RECV_F0 1RECV_F1 1F0 2F0 2SEND_F0 1F1 2RECV_B0 2F1 2SEND_F1")))
      << line;
}

TEST(Csv, LateTransfersStandNextToTheirActions) {
  const Table table = parse_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(to_csv(table, CsvTransfers::kLate),
            csv("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n"
                "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1\n"));
  // What is sent first is received first, whatever is needed first.
  EXPECT_EQ(
      lines_of(to_csv(parse_csv("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n"), CsvTransfers::kLate))[1],
      csv("1RECV_F0 1RECV_F1 1F1 1F0 1B0 1SEND_B0 1B1 1SEND_B1"));
}

TEST(Csv, ThereAndBackAgain) {
  const std::vector<Table> tables = {
      make_table(gpipe_rows({.ranks = 3, .micro_batches = 4})),
      make_table(gpipe_rows({.ranks = 2, .micro_batches = 3, .stage_map = StageMap::v(2, 4)})),
      make_table(one_f_one_b_rows({.ranks = 1, .micro_batches = 12})),
      make_table(interleaved_1f1b_rows({.ranks = 4, .micro_batches = 9, .chunks = 3})),
      zb1p_2_ranks(),
      make_table(zbv_rows({.ranks = 4, .micro_batches = 8, .chunks = 2})),
      make_table(dualpipev_rows({.ranks = 4, .micro_batches = 10, .chunks = 2})),
      make_table(forward_only_rows({.ranks = 3, .micro_batches = 5, .chunks = 2})),
  };
  for (const Table& table : tables) {
    const std::string text = to_csv(table);
    SCOPED_TRACE(text.substr(0, 60));
    const Table back = parse_csv(text);
    EXPECT_EQ(back.map, table.map);
    EXPECT_EQ(back.micro_batches, table.micro_batches);
    EXPECT_EQ(back.trains, table.trains);
    EXPECT_EQ(back.rows, table.rows);
    EXPECT_EQ(to_csv(back), text);
    for (const CsvTransfers transfers : {CsvTransfers::kEarly, CsvTransfers::kLate}) {
      const std::string with_transfers = to_csv(table, transfers);
      EXPECT_EQ(with_transfers.find("SEND") == std::string::npos, table.map.num_ranks() == 1);
      EXPECT_EQ(parse_csv(with_transfers).rows, table.rows);
    }
  }
}

TEST(Csv, KeepsIdleCells) {
  const std::string text = ",0F0,,,0B0,\n,,1F0,1B0\n";
  const Table table = parse_csv(text);
  ASSERT_EQ(table.rows[0].size(), 6u);
  EXPECT_TRUE(table.rows[0][0].idle());
  EXPECT_TRUE(table.rows[0][5].idle());
  EXPECT_EQ(to_csv(table), text);
}

TEST(Csv, TakesWhatSpreadsheetsAndEditorsMakeOfAFile) {
  const Table plain = parse_csv("0F0,,0B0\n1F0,1B0\n");
  for (const char* text : {"0F0,,0B0\n1F0,1B0", "0F0,,0B0\r\n1F0,1B0\r\n",
                           "0F0, ,0B0\n 1F0 ,\t1B0\n", "\"0F0\",\"\",\"0B0\"\n1F0,\"1B0\"\n",
                           "\xef\xbb\xbf"
                           "0F0,,0B0\n1F0,1B0\n"}) {
    EXPECT_EQ(parse_csv(text).rows, plain.rows) << text;
  }
}

TEST(Csv, TakesTheMapFromTheLinesOrTheCaller) {
  EXPECT_EQ(to_text(parse_csv("0F0,2F0,3F0\n1F0\n").map), "0,1,0,0");
  EXPECT_EQ(problem("0F0,0B0\n1F0,1B0\n", {.stage_map = StageMap::loop(3, 1)}),
            "[csv] it has 2 lines; expected one for each of the 3 ranks of the stage map");
  EXPECT_EQ(problem("0F0,0B0\n1F0,1B0\n", {.stage_map = StageMap(std::vector{1, 0})}),
            "[csv] line 1, column 1: 0F0 is of a stage of rank 1; expected it in that rank's row, "
            "or another stage map");
  EXPECT_EQ(problem("0F0,0B0\n1F0,1B0\n", {.stage_map = StageMap::loop(2, 2)}),
            "[csv] rank 0 has no 2F0; expected every micro batch, 0 to 0, on every stage");
}

TEST(Csv, LettersOf2024) {
  const CsvReadOptions old = {.letters = CsvLetters::k2024};
  const auto row = [&old](const char* text) { return to_words(parse_csv(text, old).rows[0]); };
  EXPECT_EQ(row("0F0,0B0"), "0F0 0B0");
  EXPECT_EQ(row("0F0,0BW0"), "0F0 0B0");
  EXPECT_EQ(row("0F0,0B0,0W0,0F1,0BW1"), "0F0 0I0 0W0 0F1 0B1");
  EXPECT_EQ(problem("0F0,0B0,0W0,0F1,0B1", old),
            "[csv] line 1, column 5: 0I1 has no weight part (W); expected one after it");
  EXPECT_EQ(problem("0F0,0I0,0W0", old),
            "[csv] line 1, column 2: \"0I0\" is an input part as it is written today; expected B, "
            "or that the file is read with today's letters");
  EXPECT_EQ(problem("0F0,0BW0"),
            "[csv] line 1, column 2: \"0BW0\" is a whole backward as it was written in 2024; "
            "expected B, or that the file is read with the letters of 2024");
  for (const char* cell : {"0BW", "BW0", "0BWW0", "0BW0x", "00BW0", "0WB0"}) {
    EXPECT_NE(problem(std::string("0F0,") + cell, old), "") << cell;
  }
}

TEST(Csv, RefusesCellsThatAreNotWholeActions) {
  EXPECT_EQ(problem("0F0,0B0\n1F0,1B0x\n"),
            "[csv] line 2, column 2: \"1B0x\" is not an action: something follows the micro batch; "
            "expected stage, kind and micro batch, such as 2F0 (kinds F, B, I, W), or "
            "(0F7;7B3)OVERLAP_F_B");
  for (const char* cell :
       {"0SEND_F",       "SEND_F0",     "0SEND_F0x",     "0SEND_F00",
        "00SEND_F0",     "0SEND_G0",    "0SENDF0",       "0SEND_F_RECV_B0",
        "0send_F0",      "-1SEND_F0",   "0SEND_F-1",     "0SEND_F2147483648",
        "0REDUCE_GRAD0", "REDUCE_GRAD", "0REDUCE_GRADS", "0F 0",
        "0F0;0B0",       "\"0B0",       "0B0\"",         "\"\"0B0\"\"",
        "0F2147483648",  "0\rB0",       "(0F1;0B0)",     "(0F1;0B0)OVERLAP_F_B x",
        "OVERLAP_F_B"}) {
    EXPECT_EQ(problem(std::string("0F0,0B0,") + cell + "\n").substr(0, 24),
              "[csv] line 1, column 3: ")
        << cell;
  }
  EXPECT_EQ(problem("0UNSHARD,0F0,0B0,0RESHARD\n"),
            "[csv] line 1, column 1: \"0UNSHARD\" is of parameters that are sharded, which these "
            "are not; expected a file without UNSHARD and RESHARD; leave them out");
  EXPECT_NE(problem(std::string("0F0,0B\0", 7)).find("\"0B\\x00\""), std::string::npos);
}

TEST(Csv, RefusesLinesAndStagesThatMakeNoPipe) {
  EXPECT_EQ(problem(""), "[csv] it is empty; expected a line for each rank");
  EXPECT_EQ(problem("0F0,0B0\n\n"),
            "[csv] line 2 holds no F, B, I or W; expected each of the 2 lines to be a rank with a "
            "stage");
  EXPECT_EQ(problem("0F0,0B0\n1F0,0F1\n"),
            "[csv] line 2, column 2: 0F1 is of a stage that line 1, column 1 has too; expected all "
            "actions of a stage in the line of one rank");
  EXPECT_EQ(problem("0F0,0B0\n2F0,2B0\n"),
            "[csv] no line has an action of stage 1, but line 2, column 1 one of stage 2; expected "
            "stages from 0 without a gap: each hands over to the next, so a stage that is skipped "
            "must be there and pass the tensor through");
  EXPECT_EQ(problem("0F0,0F2147483647\n"),
            "[csv] line 1, column 2: 0F2147483647 is of more micro batches than there can be");
  EXPECT_EQ(problem("0F0,0F2147483646\n"),
            "[csv] rank 0 has no 0F1; expected every micro batch, 0 to 2147483646, on every stage");
  EXPECT_EQ(problem("2147483647F0\n").substr(0, 30), "[csv] no line has an action of");
}

TEST(Csv, SaysWhereAnOrderIsWrong) {
  EXPECT_EQ(problem("0F0,,0B0,0SEND_F0,0B0\n1F0,1B0\n"),
            "[csv] line 1, column 5: 0B0 was there before, in line 1, column 3; expected each "
            "action once");
  EXPECT_EQ(problem("0B0,0F0\n"),
            "[csv] line 1, column 1: 0B0 stands before its forward; expected it after");
}

// Two ranks, one micro batch, right as they stand.
constexpr const char* kRank0 = "0F0,0SEND_F0,0RECV_B0,0B0\n";
constexpr const char* kRank1 = "1RECV_F0,1F0,1B0,1SEND_B0\n";

TEST(Csv, ChecksEachTransfer) {
  const auto first = [](const std::string& line) { return problem(line + "\n" + kRank1); };
  const auto second = [](const std::string& line) { return problem(kRank0 + line + "\n"); };
  EXPECT_EQ(problem(std::string(kRank0) + kRank1), "");
  EXPECT_EQ(first("0SEND_F0,0F0,0RECV_B0,0B0"),
            "[csv] line 1, column 1: 0SEND_F0 stands before 0F0, which makes its data; expected it "
            "after");
  EXPECT_EQ(second("1F0,1RECV_F0,1B0,1SEND_B0"),
            "[csv] line 2, column 2: 1RECV_F0 stands after 1F0, which needs its data; expected it "
            "before");
  EXPECT_EQ(second("1RECV_F0,1F0,1B0,1SEND_B0,1SEND_B0"),
            "[csv] line 2, column 5: 1SEND_B0 was there before; expected each transfer once");
  EXPECT_EQ(first("0F0,0RECV_B0,0B0"),
            "[csv] line 1: 0SEND_F0 is missing; expected every transfer between ranks on both "
            "sides, or no cell of communication at all; a stage hands over to the next one alone: "
            "where data are needed further on, let the stages between pass the tensor through");
  EXPECT_EQ(first("0F0,0SEND_F0,0B0").substr(0, 34), "[csv] line 1: 0RECV_B0 is missing;");
  EXPECT_EQ(first("0F0,0SEND_F0,0RECV_B0,0B0,1SEND_F0"),
            "[csv] line 1, column 5: 1SEND_F0 is of a stage of rank 1; expected it in that rank's "
            "line");
  EXPECT_EQ(first("0F0,0SEND_F0,0RECV_B0,0B0,2SEND_F0"),
            "[csv] line 1, column 5: 2SEND_F0 names a stage that does not exist; expected 0 to 1");
  EXPECT_EQ(first("0F0,0SEND_F0,0SEND_F1,0RECV_B0,0B0"),
            "[csv] line 1, column 3: 0SEND_F1 names a micro batch that does not exist; expected 0 "
            "to 0");
  EXPECT_EQ(second("1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0"),
            "[csv] line 2, column 3: 1SEND_F0 has no stage after it: stage 1 is the last; a stage "
            "hands over to the next one alone: where data are needed further on, let the stages "
            "between pass the tensor through");
  EXPECT_EQ(first("0RECV_F0,0F0,0SEND_F0,0RECV_B0,0B0").substr(0, 53),
            "[csv] line 1, column 1: 0RECV_F0 has no stage before ");
  EXPECT_EQ(problem("0F0,0SEND_F0,1F0,1B0,0B0\n"),
            "[csv] line 1, column 2: 0SEND_F0 is between stages 0 and 1, which are on one rank and "
            "hand over by themselves; leave it out");
  EXPECT_EQ(problem("0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_B0\n"),
            "[csv] line 2, column 3: 1SEND_B0 stands in a table without backwards");
}

TEST(Csv, ChecksTheOrderOfAChannel) {
  const std::string sends = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n";
  EXPECT_EQ(problem(sends + "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n"), "");
  EXPECT_EQ(problem(sends + "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n"),
            "[csv] line 2, column 1: 1RECV_F1 is number 1 of the activations that rank 0 sends to "
            "rank 1, where 0SEND_F0 is; expected 1RECV_F0: they arrive in the order in which they "
            "are sent");
  EXPECT_EQ(problem(sends + "1RECV_F0,1RECV_F1,1F0,1B0,1F1,1B1,1SEND_B1,1SEND_B0\n").substr(0, 39),
            "[csv] line 1, column 5: 0RECV_B0 is num");
}

TEST(Csv, TakesReduceGradAfterTheLastBackwardAndLeavesItOut) {
  EXPECT_EQ(to_words(parse_csv("0F0,0F1,0B1,0I0,0W0,0REDUCE_GRAD\n").rows[0]),
            "0F0 0F1 0B1 0I0 0W0");
  EXPECT_EQ(problem("0F0,0F1,0B1,0REDUCE_GRAD,0B0\n"),
            "[csv] line 1, column 4: 0REDUCE_GRAD stands before the last backward of its stage, in "
            "line 1, column 5; expected it after");
  EXPECT_EQ(problem("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n"),
            "[csv] line 1, column 4: 0REDUCE_GRAD was there before; expected it once");
  EXPECT_EQ(
      problem("0F0,0REDUCE_GRAD\n"),
      "[csv] line 1, column 2: 0REDUCE_GRAD stands in a table without backwards; leave it out");
  EXPECT_NE(problem("0F0,0B0,1REDUCE_GRAD\n1F0,1B0\n"), "");
}

TEST(Csv, WritesNoTableThatIsWrongOrThatLocks) {
  Table table = parse_csv("0F0,0B0\n1F0,1B0\n");
  table.rows[0].pop_back();
  EXPECT_EQ(error_of([&] { to_csv(table); }).substr(0, 24), "[table] rank 0, cell 0: ");
  // Each rank waits for the other's second forward.
  const Table locks = parse_csv("0F0,2F1,0F1,2F0\n1F1,1F0\n");
  EXPECT_EQ(error_of([&] { to_csv(locks, CsvTransfers::kEarly); }),
            "[csv] rank 0, cell 1: 2F1 waits for what never comes; expected an order of all ranks "
            "that runs to its end");
}

TEST(Table, MergesTheAdjacentPartsOfABackward) {
  const auto merged = [](const char* words) {
    Table table{StageMap::loop(1, 2), 3, true, {row_of_words(words)}};
    return to_words(merge_backward(table).rows[0]);
  };
  EXPECT_EQ(merged("0F0 0I0 0F1 0W0 0I1 1W1 0I2 0W2"), "0F0 0I0 0F1 0W0 0I1 1W1 0B2");
  EXPECT_EQ(merged("0I0  0W0 1I0 1W0 0W1 0I1"), "0B0 1B0 0W1 0I1");
  EXPECT_EQ(merged("0I0 0W1 (0F1;1B0)OVERLAP_F_B 0W0"), "0I0 0W1 (0F1;1B0)OVERLAP_F_B 0W0");
}

}  // namespace
}  // namespace penstock::schedule
