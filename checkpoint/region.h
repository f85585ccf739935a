// Region: which elements of a logical tensor a stored piece holds, or a reader wants.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/shape.h"

namespace penstock::checkpoint {

// A slice along one axis (as tensor parallelism cuts a weight), then a range of flat, row-major
// elements of that slice (as ZeRO cuts what a rank holds). Either may be everything.
//
//   Region::whole(shape)
//   Region::shard(shape, 1, rank, ranks)                   // equal parts along axis 1
//   Region::slice(shape, 0, first_row, last_row)           // parts of any size
//   Region::whole(shape).elements(begin, end)              // a flat range
//   Region::shard(shape, 1, 0, 2).elements(begin, end)     // a flat range of a shard
struct Region {
  int axis = -1;  // -1: not sliced
  std::int64_t axis_begin = 0;
  std::int64_t axis_end = 0;
  std::int64_t begin = 0;  // elements of the slice
  std::int64_t end = 0;

  static Region whole(const tensor::Shape& logical);
  // Indices [axis_begin, axis_end) along axis.
  static Region slice(const tensor::Shape& logical, int axis, std::int64_t axis_begin,
                      std::int64_t axis_end);
  // Part `index` of `count` equal parts along axis; throws InvalidArgument when count does not
  // divide the dimension.
  static Region shard(const tensor::Shape& logical, int axis, int index, int count);
  // Elements [first, last) of this region.
  Region elements(std::int64_t first, std::int64_t last) const;

  std::int64_t numel() const { return end - begin; }
  // The shape of the slice, without regard to the element range.
  tensor::Shape slice_shape(const tensor::Shape& logical) const;
  // The shape that this region is stored with: that of the slice when it holds all of it, else
  // [numel].
  tensor::Shape stored_shape(const tensor::Shape& logical) const;
  // The same elements; a slice that is the full axis becomes no slice.
  Region normalized(const tensor::Shape& logical) const;
  bool is_whole(const tensor::Shape& logical) const;
  // Throws InvalidArgument when the region does not lie inside the logical tensor.
  void validate(const tensor::Shape& logical) const;
  // "all", "axis 1 [0, 8)", "axis 1 [0, 8) elements [0, 100)"
  std::string to_string(const tensor::Shape& logical) const;

  bool operator==(const Region&) const = default;
};

}  // namespace penstock::checkpoint
