#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tensor/cuda/dropout.h"
#include "tensor/cuda/grid.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/primitives.h"
#include "tensor/cuda/queue.h"
#include "tensor/ops/check.h"
#include "tensor/random.h"

namespace penstock::tensor::cuda {

namespace {

struct Mask {
  PhiloxKey key;
  std::uint32_t threshold;  // words below it drop their element
  const std::int64_t* samples;
  std::int64_t rows, row;  // their number, and elements of each
  std::int64_t first;      // number of a row's first element
};

// Elements go in groups of 64 to 16 blocks of the generator (RandomStream::word): a thread draws
// one block, and so takes 4 elements that lie 16 apart; its neighbours take those in between.
template <class T>
__global__ void __launch_bounds__(kThreads)
    drop(const Mask mask, const std::int64_t blocks, const Compute<T> factor, const T* x, T* out) {
  const std::int64_t first_block = mask.first / 64 * 16;
  for (std::int64_t row = thread_y(); row < mask.rows; row += threads_y()) {
    const auto sample = static_cast<std::uint64_t>(mask.samples[row]);
    for (std::int64_t i = thread_x(); i < blocks; i += threads_x()) {
      const auto block = static_cast<std::uint64_t>(first_block + i);
      const PhiloxCounter words = philox4x32(
          {low_word(block), high_word(block), low_word(sample), high_word(sample)}, mask.key);
      const std::int64_t element =
          static_cast<std::int64_t>(block / 16 * 64 + block % 16) - mask.first;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::int64_t at = element + 16 * k;
        if (at < 0 || at >= mask.row) continue;
        const Compute<T> kept = widen(x[row * mask.row + at]) * factor;
        out[row * mask.row + at] = narrow<T>(words[k] >= mask.threshold ? kept : Compute<T>(0));
      }
    }
  }
}

}  // namespace

void dropout(const Context& context, const Tensor& x, double p, const RandomKey& random,
             const Tensor& ids, std::int64_t first, const Tensor& out) {
  if (x.numel() == 0) return;
  Queue& queue = queue_of(context);
  queue.capture().cannot_repeat("draws random numbers, which the number of the step chooses");
  const std::int64_t row = x.numel() / ids.numel();
  const Mask mask = {
      .key = philox_key(random),
      .threshold = static_cast<std::uint32_t>(std::min(std::floor(p * 0x1p32), 4294967295.0)),
      .samples = ids.data<std::int64_t>(),
      .rows = ids.numel(),
      .row = row,
      .first = first};
  const std::int64_t blocks = (ceil_div(first + row, 64) - first / 64) * 16;
  const Sheet sheet(queue, blocks, mask.rows);
  for_cpu_dtype("dropout", x.dtype(), [&]<class T>(T) {
    launch(independent(drop<T>), sheet.grid, sheet.block, 0, queue.stream(), mask, blocks,
           1.0 / (1.0 - p), x.data<T>(), out.data<T>());
  });
}

}  // namespace penstock::tensor::cuda
