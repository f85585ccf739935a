#include <cstdint>
#include <limits>

#include "tensor/cuda/grid.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shape.h"
#include "tensor/cuda/shared.h"
#include "tensor/cuda/unit.h"

namespace penstock::tensor::cuda {

namespace {

// Sizes and strides in units.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    copy_units(const Unit* from, const std::int64_t from_stride, Unit* to,
               const std::int64_t to_stride, const std::int64_t units, const std::int64_t count) {
  for (std::int64_t i = thread_y(); i < count; i += threads_y()) {
    for (std::int64_t unit = thread_x(); unit < units; unit += threads_x()) {
      to[i * to_stride + unit] = from[i * from_stride + unit];
    }
  }
}

constexpr int kTile = 32;                    // rows and columns of a tile
constexpr int kTileRows = kThreads / kTile;  // of them that a block moves at once
constexpr int kTileStride = kTile + 1;       // in shared memory: no two rows in one bank

// Matrices are transposed by way of tiles in shared memory, so that device memory is read and
// written along rows.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    swap_elements(const Element* x, const AxisSwap s, const std::int64_t tiles, Element* out) {
  Element* tile = shared_memory<Element>();
  const std::int64_t tiles_a = ceil_div(s.a, kTile);
  const std::int64_t tiles_b = ceil_div(s.b, kTile);
  const int along = static_cast<int>(threadIdx.x);
  const int across = static_cast<int>(threadIdx.y);
  for (std::int64_t at = blockIdx.x; at < tiles; at += gridDim.x) {
    const std::int64_t first_b = at % tiles_b * kTile;
    const std::int64_t first_a = at / tiles_b % tiles_a * kTile;
    const std::int64_t matrix = at / tiles_b / tiles_a;
    const std::int64_t from = (matrix / s.middle * s.a * s.middle + matrix % s.middle) * s.b;
    const std::int64_t to = (matrix / s.middle * s.b * s.middle + matrix % s.middle) * s.a;
    for (int k = across; k < kTile; k += kTileRows) {
      const std::int64_t i = first_a + k, j = first_b + along;
      if (i < s.a && j < s.b) tile[k * kTileStride + along] = x[from + i * s.middle * s.b + j];
    }
    __syncthreads();
    for (int k = across; k < kTile; k += kTileRows) {
      const std::int64_t i = first_a + along, j = first_b + k;
      if (i < s.a && j < s.b) out[to + j * s.middle * s.a + i] = tile[along * kTileStride + k];
    }
    __syncthreads();
  }
}

// Elements are blocks of so many units. Index is 32 bits where all block numbers fit: it divides
// far faster.
template <class Index, class Unit>
__global__ void __launch_bounds__(kThreads)
    swap_blocks(const Unit* x, const AxisSwap s, const std::int64_t units, const std::int64_t count,
                Unit* out) {
  const auto a = static_cast<Index>(s.a), b = static_cast<Index>(s.b);
  const auto middle = static_cast<Index>(s.middle);
  for (std::int64_t block = thread_y(); block < count; block += threads_y()) {
    const auto to = static_cast<Index>(block);  // [outer, b, middle, a]
    const Index i = to % a, rest = to / a;
    const Index m = rest % middle, outer_j = rest / middle;
    const Index j = outer_j % b, outer = outer_j / b;
    const std::int64_t from = ((outer * a + i) * middle + m) * b + j;
    for (std::int64_t unit = thread_x(); unit < units; unit += threads_x()) {
      out[block * units + unit] = x[from * units + unit];
    }
  }
}

template <class Element>
void run_elements(const Queue& queue, const Tensor& x, const AxisSwap& s, const Tensor& out) {
  const std::int64_t tiles = s.outer * s.middle * ceil_div(s.a, kTile) * ceil_div(s.b, kTile);
  const auto blocks = static_cast<unsigned>(std::min(tiles, many_blocks(queue)));
  launch(synchronising(swap_elements<Element>), blocks, dim3(kTile, kTileRows),
         kTile * kTileStride * sizeof(Element), queue.stream(),
         reinterpret_cast<const Element*>(x.raw()), s, tiles,
         reinterpret_cast<Element*>(out.raw()));
}

void run_blocks(const Queue& queue, const Tensor& x, const AxisSwap& s, std::size_t bytes,
                const Tensor& out) {
  const std::int64_t count = s.outer * s.a * s.middle * s.b;
  const auto run = [&]<class Unit>(Unit) {
    const auto units = static_cast<std::int64_t>(bytes / sizeof(Unit));
    const Sheet sheet(queue, units, count);
    const bool narrow = count <= std::numeric_limits<std::uint32_t>::max();
    launch(independent(narrow ? swap_blocks<std::uint32_t, Unit> : swap_blocks<std::int64_t, Unit>),
           sheet.grid, sheet.block, 0, queue.stream(), reinterpret_cast<const Unit*>(x.raw()), s,
           units, count, reinterpret_cast<Unit*>(out.raw()));
  };
  with_unit(run, x.raw(), out.raw(), bytes);
}

}  // namespace

void copy_blocks(const Context& context, const std::byte* from, std::size_t from_stride,
                 std::byte* to, std::size_t to_stride, std::size_t bytes, std::int64_t count) {
  const Queue& queue = queue_of(context);
  const auto run = [&]<class Unit>(Unit) {
    const auto in_units = [](std::size_t size) {
      return static_cast<std::int64_t>(size / sizeof(Unit));
    };
    const Sheet sheet(queue, in_units(bytes), count);
    launch(independent(copy_units<Unit>), sheet.grid, sheet.block, 0, queue.stream(),
           reinterpret_cast<const Unit*>(from), in_units(from_stride), reinterpret_cast<Unit*>(to),
           in_units(to_stride), in_units(bytes), count);
  };
  with_unit(run, from, to, from_stride, to_stride, bytes);
}

void swap_axes(const Context& context, const Tensor& x, const AxisSwap& s, const Tensor& out) {
  const bool moves = s.a > 1 ? s.b > 1 || s.middle > 1 : s.b > 1 && s.middle > 1;
  if (!moves) return context.allocator->copy(out.raw(), x.raw(), x.nbytes());
  const Queue& queue = queue_of(context);
  const std::size_t bytes = static_cast<std::size_t>(s.inner) * size_of(x.dtype());
  switch (bytes) {
    case 1:
      return run_elements<std::uint8_t>(queue, x, s, out);
    case 2:
      return run_elements<std::uint16_t>(queue, x, s, out);
    case 4:
      return run_elements<std::uint32_t>(queue, x, s, out);
    case 8:
      return run_elements<std::uint64_t>(queue, x, s, out);
    default:
      return run_blocks(queue, x, s, bytes, out);
  }
}

}  // namespace penstock::tensor::cuda
