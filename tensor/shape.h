// Shape: the dimensions of a row-major tensor, held inline so that copying one never allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace penstock::tensor {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  // rank 0: a scalar, one element
  // Throws InvalidArgument for more than kMaxRank dimensions, a negative one, or a product that
  // does not fit in 63 bits.
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  // The size along an axis; -1 is the last. Throws InvalidArgument outside [-rank, rank).
  std::int64_t dim(int axis) const;
  std::int64_t numel() const { return numel_; }
  std::span<const std::int64_t> dims() const {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }
  // numel() ÷ last dimension; 1 for a scalar, 0 if the last dimension is 0.
  std::int64_t rows() const;
  // This shape with one axis replaced.
  Shape with_dim(int axis, std::int64_t size) const;

  bool operator==(const Shape& other) const;
  // "[4, 16]"; a scalar is "[]".
  std::string to_string() const;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::int64_t numel_ = 1;
  int rank_ = 0;
};

}  // namespace penstock::tensor
