#include "tensor/shape.h"

#include <algorithm>

#include "tensor/error.h"

namespace penstock::tensor {

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > kMaxRank) {
    throw InvalidArgument("[shape] expected at most " + std::to_string(kMaxRank) +
                          " dimensions, got " + std::to_string(dims.size()));
  }
  bool overflow = false;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) {
      throw InvalidArgument("[shape] expected dimensions of at least 0, got " +
                            std::to_string(dims[i]) + " at axis " + std::to_string(i));
    }
    dims_[i] = dims[i];
    overflow |= __builtin_mul_overflow(numel_, dims[i], &numel_);
  }
  if (overflow && std::find(dims.begin(), dims.end(), 0) == dims.end()) {
    throw InvalidArgument("[shape] expected fewer than 2^63 elements, got the dimensions " +
                          to_string());
  }
  if (overflow) numel_ = 0;
}

std::int64_t Shape::dim(int axis) const {
  const int index = axis < 0 ? axis + rank_ : axis;
  if (index < 0 || index >= rank_) {
    throw InvalidArgument("[shape] axis " + std::to_string(axis) + " is outside of the shape " +
                          to_string());
  }
  return dims_[static_cast<std::size_t>(index)];
}

std::int64_t Shape::rows() const {
  if (rank_ == 0) return 1;
  const std::int64_t last = dims_[static_cast<std::size_t>(rank_ - 1)];
  return last == 0 ? 0 : numel_ / last;
}

Shape Shape::with_dim(int axis, std::int64_t size) const {
  dim(axis);  // checks the axis
  std::array<std::int64_t, kMaxRank> dims = dims_;
  dims[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)] = size;
  return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank_)));
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

}  // namespace penstock::tensor
