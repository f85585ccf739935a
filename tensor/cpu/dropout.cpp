#include "tensor/cpu/dropout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"
#include "tensor/random.h"

// Compiled once per instruction set, though it names no vectors: Philox's 64-bit products of many
// counters at once are what compilers vectorize well when they may.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

constexpr std::size_t kBlocks = 16;  // drawn at a time
constexpr std::size_t kWords = 4 * kBlocks;

// words[i] = RandomStream::word(first + i); first is a multiple of kWords.
void draw_words(const PhiloxKey& key, std::uint64_t sample, std::uint64_t first,
                std::uint32_t* words) {
  // 32-bit words in 64-bit lanes, so that products need no widening.
  std::uint64_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  constexpr std::uint64_t kMask = 0xffffffffu;
  for (std::size_t j = 0; j < kBlocks; ++j) {
    const std::uint64_t block = first / 4 + j;
    c0[j] = block & kMask;
    c1[j] = block >> 32;
    c2[j] = sample & kMask;
    c3[j] = sample >> 32;
  }
  std::uint32_t k0 = key[0];
  std::uint32_t k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    for (std::size_t j = 0; j < kBlocks; ++j) {
      const std::uint64_t a = (c0[j] & kMask) * 0xd2511f53u;
      const std::uint64_t b = (c2[j] & kMask) * 0xcd9e8d57u;
      c0[j] = (b >> 32) ^ c1[j] ^ k0;
      c1[j] = b & kMask;
      c2[j] = (a >> 32) ^ c3[j] ^ k1;
      c3[j] = a & kMask;
    }
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  for (std::size_t j = 0; j < kBlocks; ++j) {
    words[j] = static_cast<std::uint32_t>(c0[j]);
    words[kBlocks + j] = static_cast<std::uint32_t>(c1[j]);
    words[2 * kBlocks + j] = static_cast<std::uint32_t>(c2[j]);
    words[3 * kBlocks + j] = static_cast<std::uint32_t>(c3[j]);
  }
}

// `count` elements of one row, the first of which has the number `first` there.
template <class T>
void drop_range(const PhiloxKey& key, std::uint64_t sample, std::uint32_t threshold, T factor,
                const T* x, T* out, std::size_t first, std::size_t count) {
  std::uint32_t words[kWords];
  std::size_t skip = first % kWords;
  for (std::size_t i = 0; i < count; skip = 0) {
    draw_words(key, sample, first + i - skip, words);
    const std::size_t drawn = std::min(kWords - skip, count - i);
    for (std::size_t j = 0; j < drawn; ++j) {
      const T kept = x[i + j] * factor;
      out[i + j] = words[skip + j] >= threshold ? kept : T(0);
    }
    i += drawn;
  }
}

void drop_f32(const PhiloxKey& key, std::uint64_t sample, std::uint32_t threshold, float factor,
              const float* x, float* out, std::size_t first, std::size_t count) {
  drop_range(key, sample, threshold, factor, x, out, first, count);
}
void drop_f64(const PhiloxKey& key, std::uint64_t sample, std::uint32_t threshold, double factor,
              const double* x, double* out, std::size_t first, std::size_t count) {
  drop_range(key, sample, threshold, factor, x, out, first, count);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(drop_f32);
HWY_EXPORT(drop_f64);

namespace {

void run_drop(const PhiloxKey& key, std::uint64_t sample, std::uint32_t threshold, float factor,
              const float* x, float* out, std::size_t first, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(drop_f32)(key, sample, threshold, factor, x, out, first, count);
}
void run_drop(const PhiloxKey& key, std::uint64_t sample, std::uint32_t threshold, double factor,
              const double* x, double* out, std::size_t first, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(drop_f64)(key, sample, threshold, factor, x, out, first, count);
}

}  // namespace

void dropout(const Context& context, const Tensor& x, double p, const RandomKey& random,
             const Tensor& ids, std::int64_t first_element, const Tensor& out) {
  if (x.numel() == 0) return;
  constexpr std::int64_t kChunk = 1 << 13;  // elements that one thread takes at a time
  const PhiloxKey key = philox_key(random);
  const auto threshold = static_cast<std::uint32_t>(std::min(std::floor(p * 0x1p32), 4294967295.0));
  const std::int64_t* samples = ids.data<std::int64_t>();
  const std::int64_t row = x.numel() / ids.numel();
  const std::int64_t parts = (row + kChunk - 1) / kChunk;
  const std::int64_t rows = std::max<std::int64_t>(1, kChunk / row);  // of short rows, per task
  for_cpu_dtype("dropout", x.dtype(), [&]<class T>(T) {
    const auto factor = static_cast<Compute<T>>(1.0 / (1.0 - p));
    const T* from = x.data<T>();
    T* to = out.data<T>();
    parallel_chunks(context, ids.numel() * parts, rows, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t r = task / parts;
        const std::int64_t begin = task % parts * kChunk;
        auto number = static_cast<std::size_t>(first_element + begin);  // in the row
        in_blocks(
            static_cast<std::size_t>(std::min(kChunk, row - begin)),
            [&](std::size_t n, auto* kept, const auto* all) {
              run_drop(key, static_cast<std::uint64_t>(samples[r]), threshold, factor, all, kept,
                       number, n);
              number += n;
            },
            to + r * row + begin, from + r * row + begin);
      }
    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
