#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "tensor/cuda/cast.h"
#include "tensor/cuda/embedding.h"
#include "tensor/cuda/ids.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/map.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"
#include "tensor/cuda/unit.h"
#include "tensor/ops/check.h"
#include "tensor/ops/embedding_error.h"

namespace penstock::tensor::cuda {

namespace {

// Rows in units; a row that the table does not have is zeros.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    gather(const Ids ids, const std::int64_t count, const Unit* table, const std::int64_t first,
           const std::int64_t table_rows, const std::int64_t units, Unit* out) {
  for (std::int64_t i = thread_y(); i < count; i += threads_y()) {
    const std::int64_t row = ids[i] - first;
    const bool held = row >= 0 && row < table_rows;
    for (std::int64_t unit = thread_x(); unit < units; unit += threads_x()) {
      out[i * units + unit] = held ? table[row * units + unit] : Unit{};
    }
  }
}

constexpr int kTile = 1024;  // ids that a block looks at between two barriers
constexpr int kAtOnce = 4;   // rows that a thread reads before it adds them
constexpr int kWordBits = 32;
constexpr int kWords = kTile / kWordBits;

// Which ids of a tile are of a block's rows, in their order.
struct Matches {
  unsigned* words;  // a bit for each id, in shared memory
  int* places;      // in the tile, of those that are; their number is at [kTile]

  static constexpr std::size_t kShared = kWords * sizeof(unsigned) + (kTile + 1) * sizeof(int);

  // All threads, one warp at least; gives the number. The barriers of a call also part the reads of
  // earlier places from the writes of new ones.
  __device__ int find(const Ids& ids, std::int64_t begin, std::int64_t count, std::int64_t low,
                      std::int64_t high) const {
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    if (thread < kWords) words[thread] = 0;
    __syncthreads();
    for (int k = thread; k < kTile && begin + k < count; k += threads) {
      const std::int64_t id = ids[begin + k];
      if (id >= low && id < high) atomicOr(&words[k / kWordBits], 1u << k % kWordBits);
    }
    __syncthreads();
    if (thread < kWords) {
      int at = 0;
      for (int word = 0; word < thread; ++word) at += __popc(words[word]);
      for (unsigned bits = words[thread]; bits != 0; bits &= bits - 1) {
        const int lowest = kWordBits - 1 - __clz(static_cast<int>(bits & (0 - bits)));
        places[at++] = thread * kWordBits + lowest;
      }
      if (thread == kWords - 1) places[kTile] = at;
    }
    __syncthreads();
    return places[kTile];
  }
};
static_assert(kWords <= kWarp);

template <class T>
struct Scatter {
  Ids ids;
  std::int64_t count;
  std::int64_t first;  // id of the table's first row
  std::int64_t table_rows;
  std::int64_t block_rows;  // of the table, that a block owns
  std::int64_t columns;     // of a row, in steps
  const T* rows;
  Compute<T>* grad;
};

// grad[row] += rows[i] for a few i in their order, places of a tile that begins at `begin`; all
// rows are read before the first is added.
template <int kCount, class T>
__device__ void add_some(const Scatter<T>& s, std::int64_t begin, const int* places, int n,
                         std::int64_t column) {
  using C = Compute<T>;
  Group<T, kCount> read[kAtOnce] = {};
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    if (k < n) read[k].read(s.rows + ((begin + places[k]) * s.columns + column) * kCount);
  }
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    if (k >= n) break;
    C* to = s.grad + ((s.ids[begin + places[k]] - s.first) * s.columns + column) * kCount;
    Group<C, kCount> sum;
    sum.read(to);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum.at[j] += widen(read[k].at[j]);
    sum.write(to);
  }
}

// Each block owns some rows of the table, and looks through all ids for them; each of its threads
// owns columns of those rows. So every sum is made by one thread, in the order of the ids.
template <int kCount, class T>
__global__ void __launch_bounds__(kThreads) scatter(const Scatter<T> s) {
  const Matches matches = {shared_memory<unsigned>(),
                           shared_memory<int>(kWords * sizeof(unsigned))};
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const std::int64_t low = s.first + blockIdx.x * s.block_rows;
  const std::int64_t own_end = low + s.block_rows, table_end = s.first + s.table_rows;
  const std::int64_t high = own_end < table_end ? own_end : table_end;
  for (std::int64_t begin = 0; begin < s.count; begin += kTile) {
    const int found = matches.find(s.ids, begin, s.count, low, high);
    for (int k = 0; k < found && column < s.columns; k += kAtOnce) {
      const int n = found - k < kAtOnce ? found - k : kAtOnce;
      add_some<kCount>(s, begin, matches.places + k, n, column);
    }
  }
}

template <class T>
void run_scatter(const Context& context, const Tensor& ids, const Tensor& rows, std::int64_t first,
                 const Tensor& grad) {
  using C = Compute<T>;
  const std::int64_t width = grad.dim(1);
  if (width == 0) return;
  const Queue& queue = queue_of(context);
  constexpr int kCount = kTogether<T, C>;
  // Few rows for each block where the table is small, and else few blocks, as each reads all ids.
  const std::int64_t block_rows = std::clamp<std::int64_t>(
      grad.dim(0) / (4 * static_cast<std::int64_t>(queue.processors())), 1, 64);
  Scatter<T> s = {Ids(ids),   ids.numel(),    first,          grad.dim(0),
                  block_rows, width / kCount, rows.data<T>(), grad.data<C>()};
  const auto run = [&](auto kernel) {
    const std::int64_t threads =
        std::min<std::int64_t>(kThreads, ceil_div(s.columns, kWarp) * kWarp);
    const dim3 grid(static_cast<unsigned>(ceil_div(s.table_rows, block_rows)),
                    static_cast<unsigned>(ceil_div(s.columns, threads)));
    launch(synchronising(kernel), grid, static_cast<unsigned>(threads), Matches::kShared,
           queue.stream(), s);
  };
  if (width % kCount == 0 && in_line(s.rows, s.grad)) return run(scatter<kCount, T>);
  s.columns = width;
  run(scatter<1, T>);
}

std::string describe_id(const Fault& fault) {
  const auto rank = static_cast<std::size_t>(fault.facts[1]);
  const Shape shape(std::span<const std::int64_t>(fault.facts + 2, rank));
  return id_error(fault.facts[0], fault.value, fault.position, shape);
}

}  // namespace

void check_ids(const Context& context, const Tensor& ids, std::int64_t limit) {
  Fault fault{.describe = describe_id, .facts = {limit, ids.shape().rank()}};
  std::ranges::copy(ids.shape().dims(), fault.facts + 2);
  check_range(context, ids, limit, /*ignored=*/0, fault);
}

void gather_rows(const Context& context, const Tensor& ids, const Tensor& table, std::int64_t first,
                 const Tensor& out) {
  const std::size_t bytes = static_cast<std::size_t>(table.dim(1)) * size_of(table.dtype());
  const Queue& queue = queue_of(context);
  const auto run = [&]<class Unit>(Unit) {
    const auto units = static_cast<std::int64_t>(bytes / sizeof(Unit));
    const Sheet sheet(queue, units, ids.numel());
    launch(independent(gather<Unit>), sheet.grid, sheet.block, 0, queue.stream(), Ids(ids),
           ids.numel(), reinterpret_cast<const Unit*>(table.raw()), first, table.dim(0), units,
           reinterpret_cast<Unit*>(out.raw()));
  };
  with_unit(run, table.raw(), out.raw(), bytes);
}

void scatter_rows(const Context& context, const char* op, const Tensor& ids, const Tensor& rows,
                  std::int64_t first, const Tensor& grad, bool accumulate) {
  if (grad.dtype() != compute_dtype(rows.dtype())) {  // 16 bits: sums in f32 are rounded once
    const Tensor sums = Tensor::empty(context, grad.shape(), DType::kF32);
    if (accumulate) cast(context, grad, sums);
    scatter_rows(context, op, ids, rows, first, sums, accumulate);
    return cast(context, sums, grad);
  }
  if (!accumulate) context.allocator->zero(grad.raw(), grad.nbytes());
  for_cpu_dtype(op, rows.dtype(),
                [&]<class T>(T) { run_scatter<T>(context, ids, rows, first, grad); });
}

}  // namespace penstock::tensor::cuda
