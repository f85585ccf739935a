#include "tensor/cpu/shape.h"

#include <algorithm>
#include <cstring>

#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

constexpr std::int64_t kBand = 64;  // rows of a matrix that one thread transposes at a time

// Calls tile(i0, i1, j0, j1, from, to) for tiles, `step` wide at most, of each matrix that the axes
// a and b form. Its element (i, j) lies at from + i · middle · b + j, and goes to
// to + j · middle · a + i.
template <class Tile>
void for_tiles(const Context& context, const AxisSwap& s, std::int64_t step, const Tile& tile) {
  const std::int64_t bands = (s.a + kBand - 1) / kBand;
  parallel_for(context, s.outer * s.middle * bands, [&](std::int64_t task) {
    const std::int64_t begin = task % bands * kBand;
    const std::int64_t end = std::min(begin + kBand, s.a);
    const std::int64_t o = task / bands / s.middle;
    const std::int64_t m = task / bands % s.middle;
    const std::int64_t from = (o * s.a * s.middle + m) * s.b;
    const std::int64_t to = (o * s.b * s.middle + m) * s.a;
    for (std::int64_t i = begin; i < end; i += step) {
      for (std::int64_t j = 0; j < s.b; j += step) {
        tile(i, std::min(i + step, end), j, std::min(j + step, s.b), from, to);
      }
    }
  });
}

// Through a copy of the tile in the cache, so that memory is read and written along rows, some
// cache lines at a time.
template <class Element>
void swap_elements(const Context& context, const Tensor& x, const AxisSwap& s, const Tensor& out) {
  constexpr std::int64_t kTile = std::min<std::int64_t>(kBand, 256 / sizeof(Element));
  const auto* source = reinterpret_cast<const Element*>(x.raw());
  auto* target = reinterpret_cast<Element*>(out.raw());
  const std::int64_t from_step = s.middle * s.b;
  const std::int64_t to_step = s.middle * s.a;
  for_tiles(context, s, kTile, [=](auto i0, auto i1, auto j0, auto j1, auto from, auto to) {
    Element tile[kTile][kTile];
    for (std::int64_t i = i0; i < i1; ++i) {
      const Element* row = source + from + i * from_step;
      for (std::int64_t j = j0; j < j1; ++j) tile[j - j0][i - i0] = row[j];
    }
    for (std::int64_t j = j0; j < j1; ++j) {
      std::copy_n(tile[j - j0], i1 - i0, target + to + j * to_step + i0);
    }
  });
}

// Elements are blocks of many bytes.
void swap_blocks(const Context& context, const Tensor& x, const AxisSwap& s, std::size_t bytes,
                 const Tensor& out) {
  const std::byte* source = x.raw();
  std::byte* target = out.raw();
  constexpr std::int64_t kTile = 16;
  for_tiles(context, s, kTile, [=](auto i0, auto i1, auto j0, auto j1, auto from, auto to) {
    for (std::int64_t i = i0; i < i1; ++i) {
      for (std::int64_t j = j0; j < j1; ++j) {
        const auto source_index = static_cast<std::size_t>(from + i * s.middle * s.b + j);
        const auto target_index = static_cast<std::size_t>(to + j * s.middle * s.a + i);
        std::memcpy(target + target_index * bytes, source + source_index * bytes, bytes);
      }
    }
  });
}

}  // namespace

void copy_blocks(const Context& context, const std::byte* from, std::size_t from_stride,
                 std::byte* to, std::size_t to_stride, std::size_t bytes, std::int64_t count) {
  if (bytes == 0) return;
  const std::size_t blocks = std::max<std::size_t>(1, (std::size_t{1} << 16) / bytes);
  parallel_chunks(
      context, count, static_cast<std::int64_t>(blocks), [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          std::memcpy(to + i * to_stride, from + i * from_stride, bytes);
        }
      });
}

void swap_axes(const Context& context, const Tensor& x, const AxisSwap& s, const Tensor& out) {
  const std::size_t bytes = static_cast<std::size_t>(s.inner) * size_of(x.dtype());
  switch (bytes) {
    case 1:
      return swap_elements<std::uint8_t>(context, x, s, out);
    case 2:
      return swap_elements<std::uint16_t>(context, x, s, out);
    case 4:
      return swap_elements<std::uint32_t>(context, x, s, out);
    case 8:
      return swap_elements<std::uint64_t>(context, x, s, out);
    default:
      return swap_blocks(context, x, s, bytes, out);
  }
}

}  // namespace penstock::tensor::cpu
