#include "tensor/cpu/shape.h"

#include <algorithm>
#include <cstring>

#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

constexpr std::int64_t kBand = 64;  // rows of a matrix that one thread transposes at a time

// Calls move(to, from), element indices, for the rows [begin, end) of the matrix (o, m) that the
// axes a and b form; in tiles, so that both sides stay in the cache.
template <class Move>
void swap_rows(const AxisSwap& s, std::int64_t o, std::int64_t m, std::int64_t begin,
               std::int64_t end, const Move& move) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t i0 = begin; i0 < end; i0 += kTile) {
    const std::int64_t i1 = std::min(i0 + kTile, end);
    for (std::int64_t j0 = 0; j0 < s.b; j0 += kTile) {
      const std::int64_t j1 = std::min(j0 + kTile, s.b);
      for (std::int64_t j = j0; j < j1; ++j) {
        for (std::int64_t i = i0; i < i1; ++i) {
          move(((o * s.b + j) * s.middle + m) * s.a + i, ((o * s.a + i) * s.middle + m) * s.b + j);
        }
      }
    }
  }
}

template <class Move>
void swap_all(const Context& context, const AxisSwap& s, const Move& move) {
  const std::int64_t bands = (s.a + kBand - 1) / kBand;
  parallel_for(context, s.outer * s.middle * bands, [&](std::int64_t task) {
    const std::int64_t begin = task % bands * kBand;
    const std::int64_t matrix = task / bands;
    swap_rows(s, matrix / s.middle, matrix % s.middle, begin, std::min(begin + kBand, s.a), move);
  });
}

template <class Element>
void swap_elements(const Context& context, const Tensor& x, const AxisSwap& s, const Tensor& out) {
  const auto* from = reinterpret_cast<const Element*>(x.raw());
  auto* to = reinterpret_cast<Element*>(out.raw());
  swap_all(context, s, [=](std::int64_t i, std::int64_t j) { to[i] = from[j]; });
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
      const std::byte* from = x.raw();
      std::byte* to = out.raw();
      swap_all(context, s, [=](std::int64_t i, std::int64_t j) {
        std::memcpy(to + static_cast<std::size_t>(i) * bytes,
                    from + static_cast<std::size_t>(j) * bytes, bytes);
      });
  }
}

}  // namespace penstock::tensor::cpu
