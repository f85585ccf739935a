// Products of 16-bit matrices, for matmul.cpp alone: panels of the operands become floats, products
// are added up in f32, and a result of 16 bits is rounded once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensor/context.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/staged.h"
#include "tensor/cpu/workspace.h"

namespace penstock::tensor::cpu {

// A tile of c, [m, n], of a product over k, by one thread after the other: the floats of a panel of
// a, one of b, and of c where that has 16 bits.
template <class T, class Out>
class HalfTile {
 public:
  // Inner dimension of a panel: with tiles of 640 by 1,024, panels of 4 MiB at most.
  static constexpr std::int64_t kDepth = 1024;

  // For tiles of at most this shape.
  HalfTile(const Context& context, const GemmShape& most)
      : depth_(std::min(most.k, kDepth)),
        a_(context, most.m * depth_),
        b_(context, most.n * depth_),
        c_(context, most.m * most.n) {}

  // c = op(a)·op(b), plus bias (n numbers, or null) or plus the old c when accumulate is true.
  void compute(const GemmShape& tile, Matrix<const T> a, Matrix<const T> b, const T* bias,
               bool accumulate, Matrix<Out> c) const {
    const Matrix<float> sums = start(tile, bias, accumulate, c);
    bool add = accumulate || bias != nullptr;
    std::int64_t k = 0;
    do {  // at least once, so that an empty product gives zeros
      GemmShape part = tile;
      part.k = std::min(depth_, tile.k - k);
      const Matrix<const float> left = load(a, tile.transpose_a, tile.m, k, part.k, a_.data());
      const Matrix<const float> right = load(b, !tile.transpose_b, tile.n, k, part.k, b_.data());
      gemm(part, left, right, add, sums);
      add = true;
      k += part.k;
    } while (k < tile.k);
    if constexpr (kIsHalf<Out>) {
      for (std::int64_t i = 0; i < tile.m; ++i) {
        narrow(sums.data + i * sums.stride, c.data + i * c.stride,
               static_cast<std::size_t>(tile.n));
      }
    }
  }

 private:
  // Where sums are made, with what they begin from.
  Matrix<float> start(const GemmShape& tile, const T* bias, bool accumulate, Matrix<Out> c) const {
    Matrix<float> sums{};
    if constexpr (kIsHalf<Out>) {
      sums = {c_.data(), tile.n};
    } else {
      sums = c;
    }
    const auto size = static_cast<std::size_t>(tile.n);
    for (std::int64_t i = 0; i < tile.m; ++i) {
      float* row = sums.data + i * sums.stride;
      if (bias != nullptr) {
        widen(bias, row, size);
      } else if constexpr (kIsHalf<Out>) {
        if (accumulate) widen(c.data + i * c.stride, row, size);
      }
    }
    return sums;
  }

  // Inner elements [k, k + depth) of an operand that is stored with them along its columns, or,
  // when inner_rows, along its rows; `outer` is its other dimension.
  static Matrix<const float> load(Matrix<const T> x, bool inner_rows, std::int64_t outer,
                                  std::int64_t k, std::int64_t depth, float* out) {
    const std::int64_t rows = inner_rows ? depth : outer;
    const std::int64_t cols = inner_rows ? outer : depth;
    const T* from = x.data + (inner_rows ? k * x.stride : k);
    for (std::int64_t i = 0; i < rows; ++i) {
      widen(from + i * x.stride, out + i * cols, static_cast<std::size_t>(cols));
    }
    return {out, cols};
  }

  std::int64_t depth_;
  Workspace<float> a_, b_, c_;
};

}  // namespace penstock::tensor::cpu
