// Which elements two regions of one logical tensor share, as contiguous runs: how pieces of any
// layout are put together into any other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "checkpoint/region.h"
#include "tensor/shape.h"

namespace penstock::checkpoint {

// Walks the maximal runs of a region that are contiguous in the logical tensor, in its order.
class RunCursor {
 public:
  RunCursor(const Region& region, const tensor::Shape& logical)
      : begin_(region.begin), end_(region.end), position_(region.begin) {
    std::int64_t inner = 1;
    for (int i = region.axis + 1; region.axis >= 0 && i < logical.rank(); ++i) inner *= logical[i];
    if (region.axis >= 0) {
      width_ = (region.axis_end - region.axis_begin) * inner;
      stride_ = logical[region.axis] * inner;
      shift_ = region.axis_begin * inner;
    }
    if (width_ == stride_) width_ = stride_ = logical.numel();  // not cut at all
  }

  bool done() const { return position_ >= end_; }
  // The current run, [logical(), logical() + length()), is elements [local(), …) of the region.
  std::int64_t logical() const {
    return position_ / width_ * stride_ + shift_ + position_ % width_;
  }
  std::int64_t local() const { return position_ - begin_; }
  std::int64_t length() const { return std::min(width_ - position_ % width_, end_ - position_); }

  // Moves on by n ≤ length() elements.
  void advance(std::int64_t n) { position_ += n; }
  // Moves on to the first element at or after a logical offset.
  void seek(std::int64_t offset) {
    const std::int64_t row = offset / stride_;
    const std::int64_t within = std::clamp<std::int64_t>(offset % stride_ - shift_, 0, width_);
    position_ = std::max(position_, row * width_ + within);
  }

 private:
  std::int64_t begin_;
  std::int64_t end_;
  std::int64_t position_;    // element of the slice
  std::int64_t width_ = 0;   // elements of the slice that lie together
  std::int64_t stride_ = 0;  // logical distance of two such rows
  std::int64_t shift_ = 0;   // where the slice begins in a row
};

// Calls fn(first element in a, first element in b, count) for every shared run.
template <class Fn>
void for_each_overlap(const Region& a, const Region& b, const tensor::Shape& logical, Fn&& fn) {
  RunCursor left(a, logical);
  RunCursor right(b, logical);
  while (!left.done() && !right.done()) {
    if (left.logical() < right.logical()) {
      left.seek(right.logical());
    } else if (right.logical() < left.logical()) {
      right.seek(left.logical());
    } else {
      const std::int64_t count = std::min(left.length(), right.length());
      fn(left.local(), right.local(), count);
      left.advance(count);
      right.advance(count);
    }
  }
}

}  // namespace penstock::checkpoint
