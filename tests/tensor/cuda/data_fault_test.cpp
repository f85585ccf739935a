// What kernels find wrong with data is thrown at the next wait, with the CPU's words.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tensor/error.h"
#include "tensor/ops/embedding.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::testing {
namespace {

using tensor::Context;
using tensor::DType;
using tensor::InvalidArgument;
using tensor::Tensor;

Tensor look_up(Context& context, const std::vector<std::int64_t>& ids) {
  const Tensor table = Tensor::zeros(context, {10, 4}, DType::kF32);
  const auto rows = static_cast<std::int64_t>(ids.size()) / 2;
  return embedding(context, make(context, {rows, 2}, ids), table);
}

class DataFault : public ::testing::Test {
 protected:
  DataFault() { cuda_emulation::start(); }
  ~DataFault() override {
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
  }
};

TEST_F(DataFault, NamesTheFirstBadIdAsTheCpuDoes) {
  const std::vector<std::int64_t> ids = {1, 2, 9, 10, 3, -7};
  Context cpu = cpu_context();
  const std::string wanted = message<InvalidArgument>([&] { look_up(cpu, ids); });
  EXPECT_NE(wanted.find("got 10 at position 3 of the ids [3, 2]"), std::string::npos) << wanted;

  Context device(tensor::cuda::make_cuda_allocator({}));
  const Tensor rows = look_up(device, ids);
  EXPECT_EQ(message<InvalidArgument>([&] { rows.rows(0, 1).view({8}).rows(0, 1).item(); }), wanted);
  EXPECT_EQ(rows.view({24}).rows(0, 1).item(), 0.0);  // told once
}

TEST_F(DataFault, OfTwoTheEarlierIsToldWhateverTheSeed) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    cuda_emulation::start({.seed = seed});
    Context device(tensor::cuda::make_cuda_allocator({}));
    look_up(device, {1, 2, 3, 4});
    look_up(device, {1, 2, 3, 77});
    look_up(device, {88, 2, 3, 4});
    const auto fence = device.allocator->fence();
    const std::string text = message<InvalidArgument>([&] { fence->wait(); });
    EXPECT_NE(text.find("got 77 at position 3"), std::string::npos) << text;
    fence->wait();
  }
}

}  // namespace
}  // namespace penstock::testing
