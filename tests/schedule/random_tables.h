// Tables that can run but that no rule makes: any stage map, any order that some run could have.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "schedule/table.h"

namespace penstock::schedule {

// Plays the pipe and lets chance choose, again and again, which of the passes that could run now
// runs next. The rows are then those of a run, so the table can run.
class RandomTable {
 public:
  explicit RandomTable(std::uint64_t seed) : random_(seed), map_(make_map()) {
    micro_batches_ = between(1, 8);
    trains_ = between(0, 3) > 0;
    const auto passes = static_cast<std::size_t>(map_.num_stages()) * at(micro_batches_);
    forward_.assign(passes, false);
    input_.assign(passes, false);
    weight_.assign(passes, false);
    for (std::size_t i = 0; i < passes; ++i) splits_.push_back(between(0, 1) > 0);
  }

  Table make() {
    Table table{map_, micro_batches_, trains_, {}};
    table.rows.resize(at(map_.num_ranks()));
    // Some pipes like some passes more, so that rows come out in one piece, or in turns.
    std::array<int, 4> liking{};
    for (int& weight : liking) weight = between(1, 8);
    const bool overlaps = between(0, 2) == 0;
    for (std::vector<Action> ready = ready_passes(); !ready.empty(); ready = ready_passes()) {
      std::vector<int> weights;
      for (const Action& action : ready)
        weights.push_back(liking[at(static_cast<int>(action.kind))]);
      const Action action =
          ready[at(std::discrete_distribution<int>(weights.begin(), weights.end())(random_))];
      Row& row = table.rows[at(map_.rank_of(action.stage).value)];
      if (between(0, 9) == 0) row.emplace_back();
      const Action* const partner = overlaps ? partner_of(action, ready) : nullptr;
      run(action);
      if (partner == nullptr) {
        row.emplace_back(action);
      } else {
        run(*partner);
        row.push_back(Cell::overlapped(action, *partner));
      }
    }
    return table;
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::size_t index(StageId stage, int m) const {
    return at(stage.value) * at(micro_batches_) + at(m);
  }

  StageMap make_map() {
    const int ranks = between(1, 5);
    std::vector<std::int32_t> owners;
    for (int rank = 0; rank < ranks; ++rank) owners.push_back(rank);
    for (int more = between(0, 2 * ranks); more > 0; --more)
      owners.push_back(between(0, ranks - 1));
    std::ranges::shuffle(owners, random_);
    return StageMap(owners);
  }

  std::vector<Action> ready_passes() const {
    using enum ActionKind;
    std::vector<Action> ready;
    for (int s = 0; s < map_.num_stages(); ++s) {
      for (int m = 0; m < micro_batches_; ++m) {
        const StageId stage{s};
        const std::size_t i = index(stage, m);
        const auto add = [&](ActionKind kind) { ready.push_back({kind, stage, MicroBatchId{m}}); };
        if (!forward_[i]) {
          if (s == 0 || forward_[index(StageId{s - 1}, m)]) add(kForward);
        } else if (trains_ && !input_[i]) {
          const bool last = s + 1 == map_.num_stages();
          if (last || input_[index(StageId{s + 1}, m)])
            add(splits_[i] ? kBackwardInput : kBackward);
        } else if (trains_ && !weight_[i]) {
          add(kBackwardWeight);
        }
      }
    }
    return ready;
  }

  // A full backward of the same rank that may overlap with a forward.
  const Action* partner_of(const Action& action, const std::vector<Action>& ready) const {
    if (action.kind != ActionKind::kForward) return nullptr;
    for (const Action& other : ready) {
      if (other.kind == ActionKind::kBackward &&
          map_.rank_of(other.stage) == map_.rank_of(action.stage)) {
        return &other;
      }
    }
    return nullptr;
  }

  void run(const Action& action) {
    const std::size_t i = index(action.stage, action.micro_batch.value);
    if (action.kind == ActionKind::kForward) forward_[i] = true;
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput)
      input_[i] = true;
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight)
      weight_[i] = true;
  }

  std::mt19937_64 random_;
  StageMap map_;
  int micro_batches_ = 1;
  bool trains_ = true;
  std::vector<bool> forward_, input_, weight_, splits_;  // by stage and micro batch
};

}  // namespace penstock::schedule
