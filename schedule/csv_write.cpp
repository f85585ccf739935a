// Writes CSV files.
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/csv.h"
#include "schedule/csv_cell.h"

namespace penstock::schedule {
namespace {

std::size_t at(PipeRank rank) {
  return static_cast<std::size_t>(rank.value);
}

// The lines of a file, written in any order of ranks.
class Lines {
 public:
  explicit Lines(std::size_t ranks) : lines_(ranks), cells_(ranks) {}

  void add(PipeRank rank, const std::string& cell) {
    std::string& line = lines_[at(rank)];
    if (cells_[at(rank)]++ > 0) line += ',';
    line += cell;
  }
  std::string text() const {
    std::string out;
    for (const std::string& line : lines_) out += line + '\n';
    return out;
  }

 private:
  std::vector<std::string> lines_;
  std::vector<std::size_t> cells_;
};

std::string compute_only(const Table& table) {
  Lines lines(table.rows.size());
  for (std::size_t rank = 0; rank < table.rows.size(); ++rank) {
    for (const Cell& cell : table.rows[rank]) {
      lines.add(PipeRank{static_cast<std::int32_t>(rank)}, to_text(cell));
    }
  }
  return lines.text();
}

// PyTorch's placement: ranks take turns; whose next cell has its inputs runs it, sends, and has the
// receivers receive at once. An idle cell takes a turn.
class EarlyTransfers {
 public:
  explicit EarlyTransfers(const Table& table) : table_(table), lines_(table.rows.size()) {}

  std::string write() {
    std::vector<std::size_t> next(table_.rows.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        const Row& row = table_.rows[rank];
        if (next[rank] == row.size() || !ready(row[next[rank]])) continue;
        run(PipeRank{static_cast<std::int32_t>(rank)}, row[next[rank]++]);
        moved = true;
      }
    }
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      const Row& row = table_.rows[rank];
      if (next[rank] < row.size()) {
        throw ScheduleError("[csv] rank " + std::to_string(rank) + ", cell " +
                            std::to_string(next[rank]) + ": " + to_text(row[next[rank]]) +
                            " waits for what never comes; expected an order of all ranks that runs "
                            "to its end");
      }
    }
    return lines_.text();
  }

 private:
  // Gradient or activation, of which stage and micro batch.
  using Result = std::tuple<bool, StageId, MicroBatchId>;

  bool ready(const Cell& cell) const {
    for (const auto& [kind, stage, micro_batch] : cell.actions()) {
      if (kind == ActionKind::kBackwardWeight) continue;
      const bool gradient = kind != ActionKind::kForward;
      const int end = gradient ? table_.map.num_stages() - 1 : 0;
      const StageId maker{stage.value + (gradient ? 1 : -1)};
      if (stage.value != end && !made_.contains({gradient, maker, micro_batch})) return false;
    }
    return true;
  }

  void run(PipeRank rank, const Cell& cell) {
    if (cell.idle()) return;
    lines_.add(rank, to_text(cell));
    for (const Action& action : cell.actions()) {
      if (action.kind == ActionKind::kBackwardWeight) continue;
      made_.insert({action.kind != ActionKind::kForward, action.stage, action.micro_batch});
      if (const std::optional<CsvMessage> transfer = made_by(action, table_.map)) {
        lines_.add(rank, send_text(*transfer));
        lines_.add(table_.map.rank_of(transfer->to), receive_text(*transfer));
      }
    }
  }

  const Table& table_;
  Lines lines_;
  std::set<Result> made_;
};

// The transfers of a channel in the order in which they are sent, and how many are received.
struct Channel {
  std::vector<CsvMessage> sent;
  std::size_t received = 0;
};

std::string late_transfers(const Table& table) {
  using Key = std::tuple<PipeRank, PipeRank, bool>;
  const auto key = [&table](const CsvMessage& transfer) {
    return Key{table.map.rank_of(transfer.from), table.map.rank_of(transfer.to), transfer.gradient};
  };
  std::map<Key, Channel> channels;
  for (const Row& row : table.rows) {
    for (const Cell& cell : row) {
      for (const Action& action : cell.actions()) {
        if (const auto made = made_by(action, table.map))
          channels[key(*made)].sent.push_back(*made);
      }
    }
  }
  Lines lines(table.rows.size());
  std::set<CsvMessage> received;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const PipeRank rank{static_cast<std::int32_t>(r)};
    for (const Cell& cell : table.rows[r]) {
      if (cell.idle()) continue;
      for (const Action& action : cell.actions()) {
        const auto needed = needed_by(action, table.map);
        if (!needed) continue;
        Channel& channel = channels[key(*needed)];
        while (!received.contains(*needed)) {
          const CsvMessage& next = channel.sent[channel.received++];
          received.insert(next);
          lines.add(rank, receive_text(next));
        }
      }
      lines.add(rank, to_text(cell));
      for (const Action& action : cell.actions()) {
        if (const auto made = made_by(action, table.map)) lines.add(rank, send_text(*made));
      }
    }
  }
  return lines.text();
}

}  // namespace

std::string to_csv(const Table& table, CsvTransfers transfers) {
  check_table(table);
  switch (transfers) {
    case CsvTransfers::kNone:
      return compute_only(table);
    case CsvTransfers::kEarly:
      return EarlyTransfers(table).write();
    case CsvTransfers::kLate:
      return late_transfers(table);
  }
  throw ScheduleError("[csv] no such placement of transfers");
}

}  // namespace penstock::schedule
