// ZBV and DualPipeV: two chunks per rank, on stages that go up the ranks and back again. Chunk 0 of
// rank r is stage r, chunk 1 is stage 2P-1-r.
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "schedule/args.h"
#include "schedule/rules.h"

namespace penstock::schedule {
namespace {

// Writes the row of one rank. A pass takes the next micro batch of its kind on its chunk, and is
// left out if there is none. B and I count as one kind: a micro batch has one of the two.
class Writer {
 public:
  Writer(int ranks, int micro_batches, PipeRank rank)
      : stages_{StageId{rank.value}, StageId{2 * ranks - 1 - rank.value}},
        micro_batches_(micro_batches) {}

  void forward(int chunk) { add(take(ActionKind::kForward, chunk, forwards_)); }
  void backward(int chunk) { add(take(ActionKind::kBackward, chunk, backwards_)); }
  void input(int chunk) {
    put_off_.push_back(take(ActionKind::kBackwardInput, chunk, backwards_));
    add(put_off_.back());
  }
  // The next weight part of a chunk.
  void weight(int chunk) { add(take(ActionKind::kBackwardWeight, chunk, weights_)); }
  // The weight part of the oldest input part, whatever its chunk. Not to be mixed with weight().
  void oldest_weight() {
    Action action = put_off_[weights_done_++];
    action.kind = ActionKind::kBackwardWeight;
    add(action);
  }
  void overlapped(int forward, int backward) {
    const Action first = take(ActionKind::kForward, forward, forwards_);
    row_.push_back(Cell::overlapped(first, take(ActionKind::kBackward, backward, backwards_)));
  }

  int forwards(int chunk) const { return forwards_[static_cast<std::size_t>(chunk)]; }
  int weights(int chunk) const { return weights_[static_cast<std::size_t>(chunk)]; }
  Row take_row() { return std::exchange(row_, {}); }

 private:
  Action take(ActionKind kind, int chunk, std::array<int, 2>& counts) {
    const auto index = static_cast<std::size_t>(chunk);
    return {kind, stages_[index], MicroBatchId{counts[index]++}};
  }
  void add(const Action& action) {
    if (action.micro_batch.value < micro_batches_) row_.emplace_back(action);
  }

  std::array<StageId, 2> stages_;
  int micro_batches_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> backwards_{};
  std::array<int, 2> weights_{};
  std::vector<Action> put_off_;  // the input parts so far
  std::size_t weights_done_ = 0;
  Row row_;
};

Row zbv_row(int ranks, int micro_batches, PipeRank rank) {
  const int r = rank.value;
  const int n = std::max(2 * ranks - 1, micro_batches);  // micro batches that the rule is made for
  Writer row(ranks, micro_batches, rank);
  const auto backward = [&row](int chunk) {
    row.input(chunk);
    row.weight(chunk);
  };
  for (int i = 0; i < 2 * (ranks - r) - 1; ++i) row.forward(0);
  for (int i = 0; i < r; ++i) {
    row.forward(1);
    row.forward(0);
  }
  for (int i = 0; i < ranks - r; ++i) {
    row.forward(1);
    backward(1);
  }
  while (row.forwards(1) < n) {
    if (row.forwards(0) < n) row.forward(0);
    backward(0);
    row.forward(1);
    backward(1);
  }
  for (int i = 0; i < r; ++i) {
    row.input(0);
    row.input(1);
  }
  for (int i = 0; i < ranks - r; ++i) {
    row.input(0);
    row.weight(0);
  }
  for (const int chunk : {1, 0}) {
    while (row.weights(chunk) < n) row.weight(chunk);
  }
  return row.take_row();
}

// The second half of DualPipeV's cool-down: half of the r+1 pairs of backwards still have their
// weight part, the other half and what follows put it off.
void dualpipev_cool_down(Writer& row, int ranks, int r) {
  const int change = (r + 1) / 2;
  const bool before_pair = r % 2 == 1;
  const auto backward = [&row](int chunk, bool split) {
    if (split) {
      row.input(chunk);
    } else {
      row.backward(chunk);
    }
  };
  for (int i = 0; i <= r; ++i) {
    backward(1, i > change || (i == change && before_pair));
    backward(0, i >= change);
  }
  for (int i = 0; i < ranks - r - 1; ++i) {
    row.oldest_weight();
    row.input(0);
  }
  for (int i = 0; i <= r; ++i) row.oldest_weight();
}

Row dualpipev_row(int ranks, int micro_batches, PipeRank rank) {
  const int r = rank.value;
  const int after = ranks - r - 1;  // ranks that come after this one
  Writer row(ranks, micro_batches, rank);
  for (int i = 0; i < 2 * after; ++i) row.forward(0);
  for (int i = 0; i <= r; ++i) {
    row.forward(0);
    row.forward(1);
  }
  for (int i = 0; i < after; ++i) {
    row.input(1);
    row.oldest_weight();
    row.forward(1);
  }
  for (int i = 0; i < micro_batches - ranks - after; ++i) {
    if (i == 0 && after == 0) {
      // The backward needs the forward that the last rank itself has just run: nothing overlaps.
      row.forward(0);
      row.backward(1);
    } else {
      row.overlapped(0, 1);
    }
    row.overlapped(1, 0);
  }
  for (int i = 0; i < after; ++i) {
    row.backward(1);
    row.overlapped(1, 0);
  }
  dualpipev_cool_down(row, ranks, r);
  return row.take_row();
}

RowSource rows_of(const StageMap& map, const ScheduleArgs& args,
                  Row (*row)(int ranks, int micro_batches, PipeRank)) {
  return {map, args.micro_batches, true,
          [ranks = args.ranks, micro_batches = args.micro_batches, row](PipeRank rank) {
            return row(ranks, micro_batches, rank);
          }};
}

}  // namespace

RowSource zbv_rows(const ScheduleArgs& args) {
  return rows_of(v_of_two_only("zbv", args), args, zbv_row);
}

RowSource dualpipev_rows(const ScheduleArgs& args) {
  const StageMap map = v_of_two_only("dualpipev", args);
  if (args.micro_batches / 2 < args.ranks) {
    refuse("dualpipev",
           "gradient_accumulation_steps is " + std::to_string(args.micro_batches) +
               " and pipeline.stages is " + std::to_string(args.ranks) +
               "; expected at least twice as many micro batches as stages, so that two of each "
               "rank overlap; raise the first, lower the second or choose zbv, which takes any "
               "number");
  }
  return rows_of(map, args, dualpipev_row);
}

}  // namespace penstock::schedule
