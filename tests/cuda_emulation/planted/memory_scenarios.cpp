#include <cstdint>
#include <numeric>
#include <vector>

#include "tensor/cuda/cuda.h"
#include "tensor/error.h"
#include "tensor/ops/embedding.h"
#include "tensor/transfer.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/cuda_emulation/planted/scenario.h"
#include "tests/support/tensors.h"

namespace penstock::cuda_emulation::planted {

namespace {

using tensor::Context;
using tensor::DType;
using tensor::Tensor;

// More than the ring of pinned memory holds, there and back.
std::string pass_through_staging(const Run& run) {
  start({.seed = run.seed, .patience = run.patience});
  const Context cpu = testing::cpu_context();
  const Context device(tensor::cuda::make_cuda_allocator({}));
  std::vector<std::int32_t> numbers(std::size_t{6} << 20);
  std::iota(numbers.begin(), numbers.end(), 1);
  const auto size = static_cast<std::int64_t>(numbers.size());
  const Tensor there = testing::make(device, {size}, numbers);
  const Tensor back = Tensor::empty(cpu, {size}, DType::kI32);
  device.allocator->start_download({back.raw(), back.nbytes()}, there.raw());
  device.allocator->fence()->wait();
  return testing::values<std::int32_t>(back) == numbers ? "" : "other numbers came back";
}

// An id outside of its table has to be told, and nothing of it to be read.
std::string look_up_a_bad_id(const Run& run) {
  start({.seed = run.seed, .patience = run.patience});
  Context device(tensor::cuda::make_cuda_allocator({}));
  const Tensor table = Tensor::zeros(device, {10, 4}, DType::kF32);
  const Tensor rows =
      embedding(device, testing::make(device, {3}, std::vector<std::int64_t>{1, 77, 2}), table);
  try {
    tensor::to_host(testing::cpu_context(), rows);
  } catch (const tensor::InvalidArgument&) {
    return "";
  }
  return "a bad id was not told";
}

}  // namespace

std::vector<Scenario> memory_scenarios() {
  return {{"staging", pass_through_staging}, {"bad_id", look_up_a_bad_id}};
}

}  // namespace penstock::cuda_emulation::planted
