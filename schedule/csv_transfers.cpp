#include "schedule/csv_transfers.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace penstock::schedule {
namespace {

using Kind = CsvCell::Kind;

constexpr const char* kWayRound =
    "; a stage hands over to the next one alone: where data are needed further on, let the stages "
    "between pass the tensor through";

// One side of a channel, in the order of its cells.
struct Side {
  std::vector<std::pair<CsvMessage, std::size_t>> cells;  // and the column
  std::set<CsvMessage> seen;
};

// An ordered pair of ranks, activations or gradients.
struct Channel {
  Side sends, receives;
};

class Check {
 public:
  Check(const CsvLines& lines, const Table& table) : lines_(lines), table_(table) {}

  void check() {
    for (line_ = 0; line_ < lines_.size(); ++line_) {
      index_line();
      for (column_ = 0; column_ < lines_[line_].size(); ++column_) {
        const CsvCell& cell = lines_[line_][column_];
        if (cell.kind == Kind::kCompute) continue;
        if (cell.kind == Kind::kReduceGrad) {
          check_reduce(cell);
        } else {
          add_transfer(cell);
        }
      }
    }
    if (channels_.empty()) return;
    require_every_transfer();
    for (const auto& [key, channel] : channels_) check_order(key, channel);
  }

 private:
  using Key = std::tuple<PipeRank, PipeRank, bool>;  // from, to, gradient

  [[noreturn]] static void fail(const std::string& problem) {
    throw ScheduleError("[csv] " + problem);
  }
  // What is wrong with the cell that is looked at.
  [[noreturn]] void fail_here(const std::string& text, const std::string& problem) const {
    fail(csv_place(line_, column_) + ": " + text + " " + problem);
  }

  PipeRank rank() const { return PipeRank{static_cast<std::int32_t>(line_)}; }

  // Where the line has which action.
  void index_line() {
    columns_.clear();
    reduced_.clear();
    for (std::size_t column = 0; column < lines_[line_].size(); ++column) {
      for (const Action& action : lines_[line_][column].compute.actions()) {
        columns_[{action.kind, action.stage, action.micro_batch}] = column;
        if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
          last_backward_[action.stage] = column;
        }
      }
    }
  }

  void require_own_stage(StageId stage, const std::string& text) const {
    if (stage.value >= table_.map.num_stages()) {
      fail_here(text, "names a stage that does not exist; expected 0 to " +
                          std::to_string(table_.map.num_stages() - 1));
    }
    if (const PipeRank owner = table_.map.rank_of(stage); owner != rank()) {
      fail_here(text, "is of a stage of rank " + std::to_string(owner.value) +
                          "; expected it in that rank's line");
    }
  }

  void check_reduce(const CsvCell& cell) {
    const std::string text = std::to_string(cell.stage.value) + "REDUCE_GRAD";
    require_own_stage(cell.stage, text);
    if (!table_.trains) fail_here(text, "stands in a table without backwards; leave it out");
    if (!reduced_.insert(cell.stage).second) fail_here(text, "was there before; expected it once");
    if (column_ < last_backward_.at(cell.stage)) {
      fail_here(text, "stands before the last backward of its stage, in " +
                          csv_place(line_, last_backward_.at(cell.stage)) + "; expected it after");
    }
  }

  void add_transfer(const CsvCell& cell) {
    const bool send = cell.kind == Kind::kSend;
    const std::string text = std::to_string(cell.stage.value) + (send ? "SEND_" : "RECV_") +
                             (cell.gradient ? "B" : "F") + std::to_string(cell.micro_batch.value);
    require_own_stage(cell.stage, text);
    if (cell.micro_batch.value >= table_.micro_batches) {
      fail_here(text, "names a micro batch that does not exist; expected 0 to " +
                          std::to_string(table_.micro_batches - 1));
    }
    if (cell.gradient && !table_.trains) fail_here(text, "stands in a table without backwards");

    const Action action = action_of(cell);
    const std::optional<CsvMessage> transfer =
        send ? made_by(action, table_.map) : needed_by(action, table_.map);
    if (!transfer) fail_here(text, no_edge(cell));
    const std::size_t at = columns_.at({action.kind, action.stage, action.micro_batch});
    if (send && column_ < at) {
      fail_here(text,
                "stands before " + to_text(action) + ", which makes its data; expected it after");
    }
    if (!send && column_ > at) {
      fail_here(text,
                "stands after " + to_text(action) + ", which needs its data; expected it before");
    }
    Channel& channel = channels_[key_of(*transfer)];
    Side& side = send ? channel.sends : channel.receives;
    if (!side.seen.insert(*transfer).second) {
      fail_here(text, "was there before; expected each transfer once");
    }
    side.cells.emplace_back(*transfer, column_);
  }

  // The action that makes the data of a SEND, or needs those of a RECV.
  Action action_of(const CsvCell& cell) const {
    if (!cell.gradient) return {ActionKind::kForward, cell.stage, cell.micro_batch};
    const bool whole = columns_.contains({ActionKind::kBackward, cell.stage, cell.micro_batch});
    return {whole ? ActionKind::kBackward : ActionKind::kBackwardInput, cell.stage,
            cell.micro_batch};
  }

  // Why the transfer of a cell does not exist.
  std::string no_edge(const CsvCell& cell) const {
    const bool to_next = (cell.kind == Kind::kSend) != cell.gradient;
    const int peer = cell.stage.value + (to_next ? 1 : -1);
    if (peer < 0) return "has no stage before it: stage 0 is the first" + std::string(kWayRound);
    if (peer >= table_.map.num_stages()) {
      return "has no stage after it: stage " + std::to_string(cell.stage.value) + " is the last" +
             kWayRound;
    }
    return "is between stages " + std::to_string(cell.stage.value) + " and " +
           std::to_string(peer) +
           ", which are on one rank and hand over by themselves; leave it out";
  }

  Key key_of(const CsvMessage& transfer) const {
    return {table_.map.rank_of(transfer.from), table_.map.rank_of(transfer.to), transfer.gradient};
  }

  void require_every_transfer() {
    for (const Row& row : table_.rows) {
      for (const Cell& cell : row) {
        for (const Action& action : cell.actions()) {
          const std::optional<CsvMessage> made = made_by(action, table_.map);
          if (!made) continue;
          const Channel& channel = channels_[key_of(*made)];
          const bool sent = channel.sends.seen.contains(*made);
          if (sent && channel.receives.seen.contains(*made)) continue;
          fail("line " +
               std::to_string(table_.map.rank_of(sent ? made->to : made->from).value + 1) + ": " +
               (sent ? receive_text(*made) : send_text(*made)) +
               " is missing; expected every transfer between ranks on both sides, or no cell of "
               "communication at all" +
               kWayRound);
        }
      }
    }
  }

  static void check_order(const Key& key, const Channel& channel) {
    const auto& [from, to, gradient] = key;
    const auto& sends = channel.sends.cells;
    const auto& receives = channel.receives.cells;  // as many: every transfer is in both, once
    for (std::size_t i = 0; i < receives.size(); ++i) {
      if (receives[i].first == sends[i].first) continue;
      fail(csv_place(static_cast<std::size_t>(to.value), receives[i].second) + ": " +
           receive_text(receives[i].first) + " is number " + std::to_string(i + 1) + " of the " +
           (gradient ? "gradients" : "activations") + " that rank " + std::to_string(from.value) +
           " sends to rank " + std::to_string(to.value) + ", where " + send_text(sends[i].first) +
           " is; expected " + receive_text(sends[i].first) +
           ": they arrive in the order in which they are sent");
    }
  }

  const CsvLines& lines_;
  const Table& table_;
  std::size_t line_ = 0, column_ = 0;
  std::map<std::tuple<ActionKind, StageId, MicroBatchId>, std::size_t> columns_;  // of the line
  std::map<StageId, std::size_t> last_backward_;
  std::set<StageId> reduced_;
  std::map<Key, Channel> channels_;
};

}  // namespace

std::string csv_place(std::size_t line, std::size_t column) {
  return "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1);
}

void check_transfers(const CsvLines& lines, const Table& table) {
  Check(lines, table).check();
}

}  // namespace penstock::schedule
