// Tiles of rows in shared memory and the products of them that a warp makes on tensor cores: for
// the attention*.cu alone. The layout of a warp's numbers is that of primitives.h.
#pragma once

#include <cstdint>

#include "tensor/cuda/primitives.h"

namespace penstock::tensor::cuda {

// log2(e): the device computes powers of 2.
constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarp;
}

// kRows rows of kHead elements, 64 or 128. Heads of fewer numbers are filled up with zeros, which
// change no product. A row's packs of 16 bytes are swapped by its number, so that the 8 rows which
// ldmatrix reads at once lie in different banks.
template <class T, int kRows, int kHead>
struct Tile {
  static constexpr int kPacks = kHead / 8;  // of a row
  static constexpr int kBytes = kRows * kHead * static_cast<int>(sizeof(T));
  T* data;

  __device__ __forceinline__ T* at(int row, int pack) const {
    return data + row * kHead + (pack ^ (row % 8)) * 8;
  }

  // Queues the copies of rows [first, first + kRows) of a matrix with `rows` rows; the others
  // become zeros.
  __device__ __forceinline__ void read(const T* from, std::int64_t stride, int first, int rows,
                                       int head) const {
#pragma unroll 1  // the addresses of all would stay in registers meanwhile
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kPacks, pack = i % kPacks;
      const bool valid = first + row < rows && pack * 8 < head;
      copy_async16(at(row, pack),
                   valid ? from + std::int64_t{first + row} * stride + pack * 8 : from, valid);
    }
  }
  __device__ __forceinline__ void write(T* to, std::int64_t stride, int first, int rows,
                                        int head) const {
#pragma unroll 1  // the addresses of all would stay in registers meanwhile
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kPacks, pack = i % kPacks;
      if (first + row < rows && pack * 8 < head) {
        store16(to + std::int64_t{first + row} * stride + pack * 8, load16(at(row, pack)));
      }
    }
  }
};

// A warp's part of a matrix [16 · kM, 8 · kN] of f32.
template <int kM, int kN>
struct Fragment {
  float at[kM][kN][4] = {};
};

// sum += a·bᵀ, of a's rows from first_row on and all rows of b.
template <class T, int kHead, int kRowsA, int kM, int kN>
__device__ __forceinline__ void multiply_rows(const Tile<T, kRowsA, kHead>& a, int first_row,
                                              const Tile<T, 8 * kN, kHead>& b,
                                              Fragment<kM, kN>& sum) {
  const int lane = lane_id();
#pragma unroll(kHead == 64 ? 2 : 1)  // more would have more addresses than registers are left
  for (int k = 0; k < kHead / 16; ++k) {
    std::uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      load_matrices(left[m], a.at(first_row + 16 * m + lane % 16, 2 * k + lane / 16));
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      std::uint32_t right[4];
      load_matrices(right, b.at(8 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(sum.at[m][n], left[m], right[0], right[1]);
        multiply_add<T>(sum.at[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// sum += a·b, with a rounded to T.
template <class T, int kHead, int kM, int kN>
__device__ __forceinline__ void multiply_rounded(const Fragment<kM, kN>& a,
                                                 const Tile<T, 8 * kN, kHead>& b,
                                                 Fragment<kM, kHead / 8>& sum) {
  const int lane = lane_id();
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    std::uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const auto& low = a.at[m][2 * k];
      const auto& high = a.at[m][2 * k + 1];
      left[m][0] = narrow_pair<T>(low[0], low[1]);
      left[m][1] = narrow_pair<T>(low[2], low[3]);
      left[m][2] = narrow_pair<T>(high[0], high[1]);
      left[m][3] = narrow_pair<T>(high[2], high[3]);
    }
#pragma unroll
    for (int n = 0; n < kHead / 8; n += 2) {
      std::uint32_t right[4];
      load_matrices_transposed(right, b.at(16 * k + lane % 16, n + lane / 16));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(sum.at[m][n], left[m], right[0], right[1]);
        multiply_add<T>(sum.at[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Calls visit(row, column, number) for all numbers of a fragment, or of one of its rows of 16.
template <int kM, int kN, class Visit>
__device__ __forceinline__ void for_numbers(Fragment<kM, kN>& fragment, const Visit& visit) {
  const int row = lane_id() / 4, column = lane_id() % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        visit(16 * m + row + i / 2 * 8, 8 * n + column + i % 2, fragment.at[m][n][i]);
      }
    }
  }
}

// Rounds a fragment, times a factor, into a tile's rows from first_row on.
template <class T, int kRows, int kHead, int kM>
__device__ __forceinline__ void put_rows(const Fragment<kM, kHead / 8>& from, float factor,
                                         const Tile<T, kRows, kHead>& tile, int first_row) {
  const int row = first_row + lane_id() / 4, column = lane_id() % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* pair = from.at[m][n] + 2 * half;
        store_pair(tile.at(row + 16 * m + 8 * half, n) + column, pair[0] * factor,
                   pair[1] * factor);
      }
    }
  }
}

}  // namespace penstock::tensor::cuda
