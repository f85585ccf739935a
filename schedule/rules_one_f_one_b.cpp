// 1F1B, interleaved 1F1B and interleaved zero bubble: one walk over rounds of micro batches.
#include <algorithm>
#include <cstdint>

#include "schedule/args.h"
#include "schedule/rules.h"

namespace penstock::schedule {
namespace {

struct Shape {
  int ranks;
  int chunks;
  int micro_batches;

  std::int64_t passes() const { return std::int64_t{chunks} * micro_batches; }  // of a rank
  int rounds() const { return std::max(1, micro_batches / ranks); }
  // Larger rounds come first: a backward then stands, in its round, after the forward that it needs
  // even though the forwards are ahead by the largest round alone.
  int round_size(int round) const {
    return micro_batches / rounds() + (round < micro_batches % rounds() ? 1 : 0);
  }
};

// The passes of one kind on a rank, in order: round by round, and chunk by chunk within a round.
class Walk {
 public:
  Walk(const Shape& shape, PipeRank rank, ActionKind kind)
      : shape_(shape), rank_(rank), kind_(kind), size_(shape.round_size(0)) {}

  Action next() {
    const int chunk = kind_ == ActionKind::kForward ? turn_ : shape_.chunks - 1 - turn_;
    const Action action{kind_, StageId{chunk * shape_.ranks + rank_.value},
                        MicroBatchId{first_ + index_}};
    if (++index_ < size_) return action;
    index_ = 0;
    if (++turn_ < shape_.chunks) return action;
    turn_ = 0;
    first_ += size_;
    size_ = shape_.round_size(++round_);
    return action;
  }

 private:
  Shape shape_;
  PipeRank rank_;
  ActionKind kind_;
  int round_ = 0;
  int size_;       // micro batches of the round
  int first_ = 0;  // micro batch of the round
  int turn_ = 0;   // chunks of the round that are done
  int index_ = 0;  // micro batches of the chunk that are done
};

// Forwards before the first pair of a forward and a backward. `hops` is how many of them a rank
// needs for each rank that comes after it.
std::int64_t warm_up(const Shape& shape, PipeRank rank, int hops) {
  const std::int64_t first = std::int64_t{shape.chunks - 1} * shape.round_size(0) +
                             std::int64_t{hops} * (shape.ranks - 1 - rank.value);
  return std::min(first, shape.passes());
}

Row interleaved_row(const Shape& shape, PipeRank rank) {
  // One chunk gets its first gradient back after one hop per rank, counted in pairs; with several,
  // backwards of later chunks come in between.
  const std::int64_t ahead = warm_up(shape, rank, shape.chunks == 1 ? 1 : 2);
  Walk forwards(shape, rank, ActionKind::kForward);
  Walk backwards(shape, rank, ActionKind::kBackward);
  Row row;
  row.reserve(static_cast<std::size_t>(2 * shape.passes()));
  for (std::int64_t k = 0; k < shape.passes() + ahead; ++k) {
    if (k < shape.passes()) row.emplace_back(forwards.next());
    if (k >= ahead) row.emplace_back(backwards.next());
  }
  return row;
}

Row zero_bubble_row(const Shape& shape, PipeRank rank) {
  const std::int64_t ahead = warm_up(shape, rank, 1);
  Walk forwards(shape, rank, ActionKind::kForward);
  Walk inputs(shape, rank, ActionKind::kBackwardInput);
  Walk weights(shape, rank, ActionKind::kBackwardWeight);
  Row row;
  row.reserve(static_cast<std::size_t>(3 * shape.passes()));
  for (std::int64_t k = 0; k < shape.passes() + ahead; ++k) {
    if (k < shape.passes()) row.emplace_back(forwards.next());
    if (k >= ahead) row.emplace_back(inputs.next());
    if (k >= ahead + rank.value) row.emplace_back(weights.next());
  }
  while (row.size() < row.capacity()) row.emplace_back(weights.next());
  return row;
}

RowSource rows_of(const StageMap& map, const ScheduleArgs& args,
                  Row (*row)(const Shape&, PipeRank)) {
  const Shape shape{args.ranks, map.num_stages() / args.ranks, args.micro_batches};
  return {map, args.micro_batches, true, [shape, row](PipeRank rank) { return row(shape, rank); }};
}

}  // namespace

RowSource one_f_one_b_rows(const ScheduleArgs& args) {
  return rows_of(one_stage_per_rank("1f1b", args), args, interleaved_row);
}

RowSource interleaved_1f1b_rows(const ScheduleArgs& args) {
  return rows_of(loop_only("interleaved_1f1b", args), args, interleaved_row);
}

RowSource zb1p_rows(const ScheduleArgs& args) {
  return rows_of(loop_only("zb1p", args), args, zero_bubble_row);
}

RowSource zb_h1_rows(const ScheduleArgs& args) {
  return rows_of(one_stage_per_rank("zb_h1", args), args, zero_bubble_row);
}

}  // namespace penstock::schedule
