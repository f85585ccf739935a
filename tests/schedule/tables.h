// Tables in tests: an executor of their own that plays them, and short ways to write and read them.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "schedule/action.h"
#include "schedule/table.h"

namespace penstock::schedule {

// "0F0 0F1 (0F2;1B0)OVERLAP_F_B": the cells of a row that are not idle.
inline std::string to_words(const Row& row) {
  std::string words;
  for (const Cell& cell : row) {
    if (!cell.idle()) words += (words.empty() ? "" : " ") + to_text(cell);
  }
  return words;
}

inline Row row_of_words(std::string_view words) {
  Row row;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    row.push_back(parse_cell(words.substr(0, end)));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return row;
}

// Costs of a full rank; a stage costs 1/chunks of them.
struct FullCosts {
  double forward = 1;
  double input = 1;
  double weight = 1;
  int chunks = 1;
};

struct Played {
  bool complete = true;
  std::string stuck;       // the first cell that cannot run, if not complete
  double makespan = 0;     // with free transfers
  std::vector<int> peaks;  // by rank: most passes forward and not yet backward in full
  // When F, or the part of the backward that hands on a gradient (B), of a stage and micro batch
  // was done.
  std::map<std::tuple<char, int, int>, double> done;
};

// Runs the rows as early as their order and their inputs allow; knows nothing but the meaning of F,
// B, I and W. An overlapped cell waits for the inputs of both and hands on both results at its end.
class Player {
 public:
  Player(const Table& table, const FullCosts& costs) : table_(table), costs_(costs) {}

  Played play() {
    const std::size_t ranks = table_.rows.size();
    std::vector<std::size_t> next(ranks, 0);
    std::vector<int> alive(ranks, 0);
    free_.assign(ranks, 0);
    played_.peaks.assign(ranks, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        while (next[rank] < table_.rows[rank].size() && run(table_.rows[rank][next[rank]], rank)) {
          count(table_.rows[rank][next[rank]++], alive[rank], played_.peaks[rank]);
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (next[rank] == table_.rows[rank].size() || !played_.complete) continue;
      played_.complete = false;
      played_.stuck = to_text(table_.rows[rank][next[rank]]);
    }
    return played_;
  }

 private:
  using Result = std::tuple<char, int, int>;

  static void count(const Cell& cell, int& alive, int& peak) {
    for (const Action& action : cell.actions()) {
      if (action.kind == ActionKind::kForward) peak = std::max(peak, ++alive);
      if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
        --alive;
      }
    }
  }

  // When the inputs of an action are there; negative if they are not.
  double ready(const Action& action) const {
    const int stage = action.stage.value;
    const int m = action.micro_batch.value;
    const auto when = [this](const Result& result) {
      const auto found = played_.done.find(result);
      return found == played_.done.end() ? -1.0 : found->second;
    };
    if (action.kind == ActionKind::kForward) return stage == 0 ? 0 : when({'F', stage - 1, m});
    if (action.kind == ActionKind::kBackwardWeight) return when({'B', stage, m});
    const double own = when({'F', stage, m});
    if (stage + 1 == table_.map.num_stages()) return own;
    const double gradient = when({'B', stage + 1, m});
    return own < 0 || gradient < 0 ? -1.0 : std::max(own, gradient);
  }

  double cost(ActionKind kind) const {
    const double b = costs_.input + costs_.weight;
    const double full[] = {costs_.forward, b, costs_.input, costs_.weight};
    return full[static_cast<std::size_t>(kind)] / costs_.chunks;
  }

  bool run(const Cell& cell, std::size_t rank) {
    double time = free_[rank];
    for (const Action& action : cell.actions()) {
      const double at = ready(action);
      if (at < 0) return false;
      time = std::max(time, at);
    }
    for (const Action& action : cell.actions()) time += cost(action.kind);
    for (const Action& action : cell.actions()) {
      if (action.kind == ActionKind::kBackwardWeight) continue;
      const char kind = action.kind == ActionKind::kForward ? 'F' : 'B';
      played_.done[{kind, action.stage.value, action.micro_batch.value}] = time;
    }
    free_[rank] = time;
    played_.makespan = std::max(played_.makespan, time);
    return true;
  }

  const Table& table_;
  FullCosts costs_;
  std::vector<double> free_;
  Played played_;
};

inline Played play(const Table& table, const FullCosts& costs = {}) {
  return Player(table, costs).play();
}

}  // namespace penstock::schedule
