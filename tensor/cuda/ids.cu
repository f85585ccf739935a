#include "tensor/cuda/block.h"
#include "tensor/cuda/ids.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"

namespace penstock::tensor::cuda {

namespace {

constexpr int kThreadsHere = 1024;

struct Minimum {
  __device__ long long operator()(long long a, long long b) const { return a < b ? a : b; }
};

// By one block, so that the lowest position is found without a second kernel.
__global__ void __launch_bounds__(kThreadsHere)
    find_first(const Ids ids, const long long n, const std::int64_t limit,
               const std::int64_t ignored, const Fault fault, Fault* record) {
  long long first = n;
  for (long long i = threadIdx.x; i < n; i += kThreadsHere) {
    const std::int64_t id = ids[i];
    if ((id >= 0 && id < limit) || id == ignored) continue;
    first = i;
    break;
  }
  first = block_reduce(first, Minimum(), shared_memory<long long>());
  if (threadIdx.x == 0 && first < n) record_fault(*record, fault, first, ids[first]);
}

}  // namespace

void check_range(const Context& context, const Tensor& ids, std::int64_t limit,
                 std::int64_t ignored, const Fault& fault) {
  if (ids.numel() == 0) return;
  const Queue& queue = queue_of(context);
  launch(synchronising(find_first), 1, kThreadsHere, kWarp * sizeof(long long), queue.stream(),
         Ids(ids), ids.numel(), limit, ignored, fault, queue.faults());
}

}  // namespace penstock::tensor::cuda
