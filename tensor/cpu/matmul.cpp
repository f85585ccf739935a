#include "tensor/cpu/matmul.h"

#include <algorithm>

#include "tensor/cpu/matmul_half.h"
#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

std::int64_t ceil_div(std::int64_t size, std::int64_t part) {
  return (size + part - 1) / part;
}

std::int64_t round_up(std::int64_t size, std::int64_t step) {
  return ceil_div(size, step) * step;
}

// How one product is cut for threads. The BLAS packs the rows of a once per column of tiles and the
// columns of b once per row of tiles: tiles of 512 rows cost it 2 % of its speed, of 256 rows 5 %
// and of 256×256 10 %. So they are as large as leaves some work to share.
struct Tiling {
  std::int64_t rows, cols;  // of a tile

  // most_cols bounds the columns of a tile.
  Tiling(const GemmShape& shape, std::int64_t most_cols) {
    std::int64_t row_tiles = std::max<std::int64_t>(ceil_div(shape.m, 640), 1);
    if (row_tiles > 2) row_tiles = round_up(row_tiles, 4);  // shared evenly by 2 or 4 threads
    const std::int64_t col_tiles = std::max<std::int64_t>(ceil_div(shape.n, most_cols), 1);
    rows = round_up(ceil_div(shape.m, row_tiles), 16);
    cols = round_up(ceil_div(shape.n, col_tiles), 64);
    for (;;) {
      const std::int64_t tiles = ceil_div(shape.m, rows) * ceil_div(shape.n, cols);
      std::int64_t& side = rows > cols ? rows : cols;
      if (tiles >= 4 || side < (tiles < 2 ? 512 : 1024)) return;
      side = round_up(ceil_div(side, 2), 64);
    }
  }
};

template <class T>
void fill_rows(Matrix<T> out, std::int64_t rows, const T* row, std::int64_t cols) {
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(row, cols, out.data + i * out.stride);
}

template <class T, class Out>
struct Operands {
  const T* a;
  const T* b;
  const T* bias;  // null: none
  Out* c;
};

// Rows [row, row + tile.m) and columns [col, col + tile.n) of c, which has shape.n columns.
// compute(tile's shape, a, b, bias, c) makes it.
template <class T, class Out, class Compute>
void compute_tile(const GemmShape& shape, const Operands<T, Out>& x, std::int64_t row,
                  std::int64_t col, const Tiling& tiling, const Compute& compute) {
  GemmShape tile = shape;
  tile.m = std::min(tiling.rows, shape.m - row);
  tile.n = std::min(tiling.cols, shape.n - col);
  const Matrix<const T> a = shape.transpose_a ? Matrix<const T>{x.a + row, shape.m}
                                              : Matrix<const T>{x.a + row * shape.k, shape.k};
  const Matrix<const T> b = shape.transpose_b ? Matrix<const T>{x.b + col * shape.k, shape.k}
                                              : Matrix<const T>{x.b + col, shape.n};
  const Matrix<Out> c = {x.c + row * shape.n + col, shape.n};
  compute(tile, a, b, x.bias == nullptr ? nullptr : x.bias + col, c);
}

template <class T, class Out>
void run(const Context& context, std::int64_t batch, const GemmShape& shape,
         const Operands<T, Out>& x, bool accumulate) {
  const Tiling tiling(shape, kIsHalf<T> ? 1024 : 4096);
  const std::int64_t tile_cols = ceil_div(shape.n, tiling.cols);
  const std::int64_t tiles = ceil_div(shape.m, tiling.rows) * tile_cols;
  // Small products are grouped, so that handing out a chunk costs less than its work.
  constexpr std::int64_t kChunkWork = 1 << 18;
  const std::int64_t work = std::max<std::int64_t>(shape.m * shape.n * shape.k, 1);
  const std::int64_t group = tiles > 1 ? 1 : std::max<std::int64_t>(kChunkWork / work, 1);
  const auto run_tiles = [&](std::int64_t begin, std::int64_t end, const auto& compute) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t product = i / tiles;
      const std::int64_t tile = i % tiles;
      const Operands<T, Out> part = {x.a + product * shape.m * shape.k,
                                     x.b + product * shape.k * shape.n, x.bias,
                                     x.c + product * shape.m * shape.n};
      compute_tile(shape, part, tile / tile_cols * tiling.rows, tile % tile_cols * tiling.cols,
                   tiling, compute);
    }
  };
  parallel_chunks(context, batch * tiles, group, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (kIsHalf<T>) {
      const HalfTile<T, Out> floats(
          context, {std::min(tiling.rows, shape.m), std::min(tiling.cols, shape.n), shape.k});
      run_tiles(begin, end, [&](const GemmShape& tile, auto a, auto b, const T* bias, auto c) {
        floats.compute(tile, a, b, bias, accumulate, c);
      });
    } else {
      run_tiles(begin, end, [&](const GemmShape& tile, auto a, auto b, const T* bias, auto c) {
        // The BLAS would write zeros first, so starting from the bias instead costs nothing.
        if (bias != nullptr) fill_rows(c, tile.m, bias, tile.n);
        gemm(tile, a, b, accumulate || bias != nullptr, c);
      });
    }
  });
}

}  // namespace

void matmul(const Context& context, const char* op, std::int64_t batch, const GemmShape& shape,
            const Tensor& a, const Tensor& b, const Tensor* bias, bool accumulate,
            const Tensor& c) {
  if (c.numel() == 0) return;
  for_cpu_dtype(op, a.dtype(), [&]<class T>(T) {
    const T* bias_data = bias == nullptr ? nullptr : bias->data<T>();
    for_result_dtype<T>(c, [&]<class Out>(Out) {
      run<T, Out>(context, batch, shape, {a.data<T>(), b.data<T>(), bias_data, c.data<Out>()},
                  accumulate);
    });
  });
}

}  // namespace penstock::tensor::cpu
