// What the tables of cases cannot say of operations on emulated devices: which kernels run, what
// they do with numbers that are none, and what is refused.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tensor/error.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/optim.h"
#include "tensor/transfer.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::testing {
namespace {

using tensor::Context;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

class KernelChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda_emulation::start();
    device_ = std::make_unique<Context>(tensor::cuda::make_cuda_allocator({}));
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
    cuda_emulation::discard();
  }

  Context& device() { return *device_; }
  Tensor numbers(const Shape& shape, DType dtype, double low, double high, std::uint64_t seed = 1) {
    return tensor::to_device(device(), uniform(cpu_, shape, dtype, low, high, seed));
  }
  std::vector<double> doubles(const Tensor& x) {
    return values<double>(cast(cpu_, tensor::to_host(cpu_, x), DType::kF64));
  }
  // Launches of kernels in whose names the text is.
  static std::int64_t launches(const std::string& text) {
    std::int64_t total = 0;
    for (const auto& [name, count] : cuda_emulation::counters().launches) {
      if (name.find(text) != std::string::npos) total += count;
    }
    return total;
  }

 private:
  Context cpu_ = cpu_context();
  std::unique_ptr<Context> device_;
};

TEST_F(KernelChoice, AttentionOfHalvesRunsOnTensorCores) {
  const tensor::AttentionShape shape{.heads = 2, .kv_heads = 1};
  attention(device(), numbers({1, 40, 4 * 64}, DType::kBF16, -1, 1), shape);
  EXPECT_EQ(launches("BF16, 64>"), 1);
  attention(device(), numbers({1, 40, 4 * 64}, DType::kF32, -1, 1), shape);
  EXPECT_EQ(launches("attend<float>"), 1);
}

TEST_F(KernelChoice, ScoresOfAnySizeDoNotOverflow) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor qkv = numbers({1, 40, 3 * 64}, dtype, -3e4, 3e4);
    const Tensor out = attention(device(), qkv, {.heads = 1, .kv_heads = 1});
    for (const double number : doubles(out)) EXPECT_LE(std::fabs(number), 3.01e4);
  }
}

TEST_F(KernelChoice, AHeadTooLargeForABlockIsRefused) {
  const Tensor qkv = numbers({1, 2, 3 * 1000}, DType::kF64, -1, 1);
  EXPECT_THROW(attention(device(), qkv, {.heads = 1, .kv_heads = 1}), tensor::Unsupported);
}

TEST_F(KernelChoice, ATargetOutOfRangeIsToldAtTheNextWait) {
  const Tensor logits = numbers({3, 8}, DType::kF32, -1, 1);
  const Tensor targets = make(device(), {3}, std::vector<std::int64_t>{1, 8, -5});
  const Tensor loss = softmax_cross_entropy(device(), logits, targets);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { loss.item(); }),
            "[softmax_cross_entropy] expected targets in [0, 8) or -100 for a row to ignore, got 8 "
            "at position 1");
}

TEST_F(KernelChoice, ARowThatIsNoNumberMakesTheLossNone) {
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::vector<float> row(40, 1.0f);
    row[17] = static_cast<float>(odd);
    const Tensor targets = make(device(), {1}, std::vector<std::int64_t>{3});
    const Tensor loss = softmax_cross_entropy(device(), make(device(), {1, 40}, row), targets);
    EXPECT_TRUE(std::isnan(loss.item()));
  }
}

TEST_F(KernelChoice, AFirstUpdateDoesNotReadTheBuffer) {
  const tensor::ParameterTensors one{numbers({20}, DType::kF32, -1, 1),
                                     numbers({20}, DType::kF32, -1, 1, 2),
                                     Tensor::empty(device(), {20}, DType::kF32)};
  EXPECT_TRUE(std::isnan(doubles(one.state).front())) << "the premise: it was not written";
  sgd_update(device(), tensor::ParameterList(&one, 1), {.momentum = 0.9}, 1, true);
  for (const double number : doubles(one.parameter)) EXPECT_TRUE(std::isfinite(number));
}

TEST_F(KernelChoice, AnUpdateOfAListIsOneKernel) {
  std::vector<tensor::ParameterTensors> list;
  for (int i = 0; i < 40; ++i) {
    const auto part = [&] { return Tensor::zeros(device(), {10 + i}, DType::kF32); };
    list.push_back({part(), part(), part(), part()});
  }
  const std::int64_t before = launches("");
  adam_update(device(), list, {}, 1, 1);
  EXPECT_EQ(launches("") - before, 1);
}

TEST_F(KernelChoice, LambWaitsOnceForAList) {
  std::vector<tensor::ParameterTensors> list;
  for (int i = 0; i < 40; ++i) {
    const auto part = [&] { return Tensor::zeros(device(), {10 + i}, DType::kF32); };
    list.push_back({part(), part(), part(), part()});
  }
  const std::int64_t before = tensor::cuda::host_waits(*device().allocator);
  lamb_apply(device(), list, {}, 1, lamb_moments(device(), list, {}, 1));
  EXPECT_EQ(tensor::cuda::host_waits(*device().allocator) - before, 1);
}

}  // namespace
}  // namespace penstock::testing
