#include "checkpoint/region.h"

#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

std::string interval(std::int64_t begin, std::int64_t end) {
  return std::string("[") + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

}  // namespace

Region Region::whole(const tensor::Shape& logical) {
  Region region;
  region.end = logical.numel();
  return region;
}

Region Region::slice(const tensor::Shape& logical, int axis, std::int64_t axis_begin,
                     std::int64_t axis_end) {
  Region region;
  region.axis = axis;
  region.axis_begin = axis_begin;
  region.axis_end = axis_end;
  region.validate(logical);
  region.end = region.slice_shape(logical).numel();
  return region;
}

Region Region::shard(const tensor::Shape& logical, int axis, int index, int count) {
  const std::int64_t size = logical.dim(axis);
  if (count < 1 || index < 0 || index >= count || size % count != 0) {
    throw tensor::InvalidArgument("[region] shard " + std::to_string(index) + " of " +
                                  std::to_string(count) + " along axis " + std::to_string(axis) +
                                  " of " + logical.to_string() +
                                  "; expected equal parts; use Region::slice for others");
  }
  const std::int64_t part = size / count;
  return slice(logical, axis, index * part, (index + 1) * part);
}

Region Region::elements(std::int64_t first, std::int64_t last) const {
  if (first < 0 || last < first || last > numel()) {
    throw tensor::InvalidArgument("[region] elements " + interval(first, last) +
                                  " of a region that has " + std::to_string(numel()));
  }
  Region part = *this;
  part.begin = begin + first;
  part.end = begin + last;
  return part;
}

tensor::Shape Region::slice_shape(const tensor::Shape& logical) const {
  return axis < 0 ? logical : logical.with_dim(axis, axis_end - axis_begin);
}

tensor::Shape Region::stored_shape(const tensor::Shape& logical) const {
  const tensor::Shape sliced = slice_shape(logical);
  return numel() == sliced.numel() ? sliced : tensor::Shape{numel()};
}

Region Region::normalized(const tensor::Shape& logical) const {
  Region region = *this;
  if (axis >= 0 && axis_begin == 0 && axis_end == logical[axis]) {
    region.axis = -1;
    region.axis_end = 0;
  }
  return region;
}

bool Region::is_whole(const tensor::Shape& logical) const {
  return normalized(logical) == whole(logical);
}

void Region::validate(const tensor::Shape& logical) const {
  const bool sliced = axis >= 0;
  const bool slice_fits = sliced ? axis < logical.rank() && axis_begin >= 0 &&
                                       axis_begin <= axis_end && axis_end <= logical[axis]
                                 : axis == -1 && axis_begin == 0 && axis_end == 0;
  if (!slice_fits) {
    throw tensor::InvalidArgument("[region] slice " + interval(axis_begin, axis_end) +
                                  " along axis " + std::to_string(axis) + " does not lie inside " +
                                  logical.to_string());
  }
  const std::int64_t available = slice_shape(logical).numel();
  if (begin < 0 || end < begin || end > available) {
    throw tensor::InvalidArgument("[region] elements " + interval(begin, end) + " of a slice of " +
                                  logical.to_string() + " that has " + std::to_string(available));
  }
}

std::string Region::to_string(const tensor::Shape& logical) const {
  if (is_whole(logical)) return "all";
  std::string text;
  if (normalized(logical).axis >= 0) {
    text = "axis " + std::to_string(axis) + " " + interval(axis_begin, axis_end);
  }
  if (numel() != slice_shape(logical).numel()) {
    text += (text.empty() ? "elements " : " elements ") + interval(begin, end);
  }
  return text;
}

}  // namespace penstock::checkpoint
