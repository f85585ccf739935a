// Tables as the CSV files of PyTorch's pipelining tools: one line per rank, one cell per step.
//
//   0F0,0F1,,,0B0,0B1
//   ,1F0,1B0,1F1,1B1,
//
// A cell is empty (idle), or an action: "2F0" is stage 2, forward, micro batch 0. Kinds: F; B, the
// whole backward; I and W, its input and its weight part; "(0F7;7B3)OVERLAP_F_B", two at once.
// Files that hold communication too have cells "2SEND_F0" (stage 2 sends what it made of micro
// batch 0), "3RECV_F0" (stage 3 gets it), the same with B for gradients, and "2REDUCE_GRAD".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "schedule/stage_map.h"
#include "schedule/table.h"

namespace penstock::schedule {

enum class CsvLetters {
  kToday,
  // As PyTorch wrote them in 2024: BW is a whole backward; B is the input part in a table that has
  // weight parts (W), else a whole backward; there is no I.
  k2024,
};

struct CsvReadOptions {
  CsvLetters letters = CsvLetters::kToday;
  // None: a stage belongs to the rank in whose line it is.
  std::optional<StageMap> stage_map = {};
};

// The compute order of a file; idle cells stay. It trains if it holds a backward. Micro batches are
// counted from the actions.
//
// Strict: the whole of each cell is parsed, and the table must be one that check_table() accepts.
// Cells of communication are checked: either there are none, or each pair of neighbouring stages on
// two ranks has each transfer once on either side, each after what makes and before what needs its
// data, and received in the order in which it is sent, per pair of ranks and direction. They are
// then left out, as lower() makes its own, and so is REDUCE_GRAD, which must follow the last
// backward of its stage. UNSHARD and RESHARD are refused: parameters are not sharded.
//
// Lines end in \n or \r\n; the last end may be missing. Blanks around a cell, quotes around it and
// a byte order mark at the beginning are accepted. ScheduleError names line and column, both from
// 1, the text found and what was expected.
Table parse_csv(std::string_view text, const CsvReadOptions& options = {});

enum class CsvTransfers {
  kNone,  // compute only: idle cells stay, so that parse_csv() gives the same table
  // The rest write no idle cells. Send right after the action that makes the data.
  kEarly,  // receive as soon as it is sent: as PyTorch lowers a table
  kLate,   // receive right before the action that needs the data, or with a later message of the
           // channel that is needed first
};

// The file of a table. Lines end in \n. ScheduleError if check_table() refuses the table, or if it
// can never run to its end and transfers are to be placed early.
std::string to_csv(const Table& table, CsvTransfers transfers = CsvTransfers::kNone);

}  // namespace penstock::schedule
