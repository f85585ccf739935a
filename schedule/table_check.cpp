#include "schedule/table_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace penstock::schedule {
namespace {

// One action of a row and the cell that holds it.
struct Entry {
  Action action;
  std::size_t cell;
};

// The passes of a stage and micro batch that hand something on.
struct Results {
  Entry output, gradient;
};

class Checker {
 public:
  Checker(const Table& table, const TablePlaces& places) : table_(table), places_(places) {}

  void check() {
    if (table_.micro_batches < 1) {
      fail("it has " + std::to_string(table_.micro_batches) + " micro batches; expected 1 or more");
    }
    const int ranks = table_.map.num_ranks();
    if (table_.rows.size() != static_cast<std::size_t>(ranks)) {
      fail("it has " + std::to_string(table_.rows.size()) + " rows; expected one for each of the " +
           std::to_string(ranks) + " ranks of the stage map " + to_text(table_.map));
    }
    for (rank_ = PipeRank{0}; rank_.value < ranks; ++rank_.value) check_row();
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw ScheduleError("[" + places_.source + "] " + problem);
  }
  [[noreturn]] void fail(const Entry& entry, const std::string& problem) const {
    fail(places_.cell(rank_, entry.cell) + ": " + to_text(entry.action) + " " + problem);
  }

  void check_row() const {
    const std::vector<Entry> entries = sorted_entries();
    std::vector<Results> before;  // of the stage before, by micro batch
    auto begin = entries.begin();
    for (const StageId stage : table_.map.stages_of(rank_)) {
      std::vector<Results> results;
      for (std::int32_t m = 0; m < table_.micro_batches; ++m) {
        const auto end = std::find_if(begin, entries.end(), [stage, m](const Entry& entry) {
          return entry.action.stage != stage || entry.action.micro_batch.value != m;
        });
        if (begin == end) {
          fail("rank " + std::to_string(rank_.value) + " has no " +
               to_text(Action{ActionKind::kForward, stage, MicroBatchId{m}}) +
               "; expected every micro batch, 0 to " + std::to_string(table_.micro_batches - 1) +
               ", on every stage");
        }
        results.push_back(check_passes({begin, end}));
        begin = end;
      }
      const bool are_neighbours =
          !before.empty() && before[0].output.action.stage.value == stage.value - 1;
      if (are_neighbours) check_hand_over(before, results);
      before = std::move(results);
    }
  }

  // A neighbour on the same rank must have run before it can hand over.
  void check_hand_over(std::span<const Results> before, std::span<const Results> after) const {
    const auto require = [this](const Entry& maker, const Entry& user) {
      if (maker.cell < user.cell) return;
      fail(user, "needs what " + to_text(maker.action) + " makes, in " +
                     places_.cell(rank_, maker.cell) + "; expected it after");
    };
    for (std::size_t m = 0; m < after.size(); ++m) {
      require(before[m].output, after[m].output);
      if (table_.trains) require(after[m].gradient, before[m].gradient);
    }
  }

  // The actions of the row, by stage and micro batch and then in row order; each names what exists.
  std::vector<Entry> sorted_entries() const {
    const Row& row = table_.rows[static_cast<std::size_t>(rank_.value)];
    std::vector<Entry> entries;
    entries.reserve(row.size());
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
      for (const Action& action : row[cell].actions()) {
        entries.push_back({action, cell});
        check_names(entries.back());
      }
    }
    std::ranges::stable_sort(entries, {}, [](const Entry& entry) {
      return std::tuple(entry.action.stage, entry.action.micro_batch);
    });
    return entries;
  }

  void check_names(const Entry& entry) const {
    const auto [kind, stage, micro_batch] = entry.action;
    if (stage.value < 0 || stage.value >= table_.map.num_stages()) {
      fail(entry, "names a stage that does not exist; expected 0 to " +
                      std::to_string(table_.map.num_stages() - 1));
    }
    if (const PipeRank owner = table_.map.rank_of(stage); owner != rank_) {
      fail(entry, "is of a stage of rank " + std::to_string(owner.value) +
                      "; expected it in that rank's row, or another stage map");
    }
    if (micro_batch.value < 0 || micro_batch.value >= table_.micro_batches) {
      fail(entry, "names a micro batch that does not exist; expected 0 to " +
                      std::to_string(table_.micro_batches - 1));
    }
  }

  // The passes of one stage and micro batch, in row order: F, or F B, or F I W.
  Results check_passes(std::span<const Entry> passes) const {
    using enum ActionKind;
    std::array<const Entry*, 4> by_kind{};
    for (const Entry& entry : passes) {
      const Entry*& earlier = by_kind[static_cast<std::size_t>(entry.action.kind)];
      if (earlier != nullptr) {
        fail(entry, "was there before, in " + places_.cell(rank_, earlier->cell) +
                        "; expected each action once");
      }
      earlier = &entry;
    }
    const Entry* forward = by_kind[static_cast<std::size_t>(kForward)];
    const Entry& first = passes.front();
    if (forward == nullptr) fail(first, "has no forward on this rank; expected one before it");
    if (&first != forward) fail(first, "stands before its forward; expected it after");
    if (!table_.trains) {
      if (passes.size() > 1) fail(passes[1], "is a backward in a table that is forward only");
      return {first, first};
    }
    check_backward(*forward, by_kind[static_cast<std::size_t>(kBackward)],
                   by_kind[static_cast<std::size_t>(kBackwardInput)],
                   by_kind[static_cast<std::size_t>(kBackwardWeight)]);
    return {first, passes[1]};  // B, or I, which stands before W
  }

  void check_backward(const Entry& forward, const Entry* full, const Entry* input,
                      const Entry* weight) const {
    if (full != nullptr) {
      if (input == nullptr && weight == nullptr) return;
      fail(input != nullptr ? *input : *weight,
           "is a part of a backward that is also there in full, in " +
               places_.cell(rank_, full->cell) + "; expected B, or I and W");
    }
    if (input == nullptr && weight == nullptr) {
      fail(forward, "has no backward; expected a full one (B), or its two parts (I and W)");
    }
    if (weight == nullptr) fail(*input, "has no weight part (W); expected one after it");
    if (input == nullptr) fail(*weight, "has no input part (I); expected one before it");
    if (weight->cell < input->cell) {
      fail(*weight, "stands before its input part (I); expected it after");
    }
  }

  const Table& table_;
  const TablePlaces& places_;
  PipeRank rank_;
};

}  // namespace

void check_table(const Table& table, const TablePlaces& places) {
  Checker(table, places).check();
}

void check_table(const Table& table) {
  check_table(table, {"table", [](PipeRank rank, std::size_t cell) {
                        return "rank " + std::to_string(rank.value) + ", cell " +
                               std::to_string(cell);
                      }});
}

}  // namespace penstock::schedule
