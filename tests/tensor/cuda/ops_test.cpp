// The operations' CUDA kernels on emulated devices: their results are the CPU's, do not depend on
// the order in which streams run, and need no wait of the host on the way.
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/gelu.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pool.h"
#include "tensor/ops/reduce.h"
#include "tensor/tape.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/support/tensors.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

static void PrintTo(const OpCase& op, std::ostream* out) {
  *out << op.name;
}

namespace {

using tensor::Context;
using tensor::DType;
using tensor::Tensor;

class CudaOps : public ::testing::TestWithParam<OpCase> {};

std::vector<OpResult> run_emulated(const OpCase& op, const OpForm& form,
                                   const cuda_emulation::Options& options) {
  cuda_emulation::start(options);
  std::vector<OpResult> results;
  {
    Context device(tensor::cuda::make_cuda_allocator({}));
    cuda_emulation::reset_counters();
    results = run_op(op, form, device, [&] {
      if (!op.waits) {
        EXPECT_EQ(cuda_emulation::counters().host_waits, 0);
      }
    });
  }
  EXPECT_EQ(cuda_emulation::fault(), "");
  EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
  return results;
}

TEST_P(CudaOps, GiveTheResultsOfTheCpuInAnyOrder) {
  const OpCase& op = GetParam();
  for (const OpForm& form : forms_of(op)) {
    SCOPED_TRACE(form.to_string());
    Context cpu = cpu_context();
    const std::vector<OpResult> wanted = run_op(op, form, cpu);
    const std::vector<OpResult> first = run_emulated(op, form, {.seed = 1});
    ASSERT_EQ(first.size(), wanted.size());
    EXPECT_EQ(compare_results(op, first, wanted), "");
    EXPECT_EQ(compare_bits(run_emulated(op, form, {.seed = 2}), first), "");
  }
}

// By the library's own kernel.
TEST(CudaProducts, AreTheCpusWhereCublasHasNoAlgorithm) {
  for (const OpCase& op : layer_cases()) {
    const bool multiplies = op.name.starts_with("linear") || op.name.starts_with("matmul") ||
                            op.name.starts_with("conv");
    if (!multiplies) continue;
    for (const OpForm& form : forms_of(op)) {
      SCOPED_TRACE(op.name + ", " + form.to_string());
      Context cpu = cpu_context();
      const std::vector<OpResult> got = run_emulated(op, form, {.refuse_products = true});
      EXPECT_EQ(compare_results(op, got, run_op(op, form, cpu)), "");
      EXPECT_EQ(cuda_emulation::counters().products, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaOps, ::testing::ValuesIn(all_cases()),
                         [](const auto& each) { return each.param.name; });

TEST(CudaReductions, AreReadByTheHost) {
  cuda_emulation::start();
  Context device(tensor::cuda::make_cuda_allocator({}));
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<double> numbers(3001, 0.5);
    const auto upload = [&] { return cast(device, make(device, {3001}, numbers), dtype); };
    EXPECT_EQ(sum_squares(device, upload()), 3001 * 0.25);
    EXPECT_TRUE(all_finite(device, upload()));
    for (const double bad : {INFINITY, -INFINITY, NAN}) {
      numbers[2999] = bad;
      EXPECT_FALSE(all_finite(device, upload()));
      EXPECT_FALSE(std::isfinite(sum_squares(device, upload())));
    }
  }
}

TEST(CudaProducts, HaveGeluAndItsGradientInThem) {
  cuda_emulation::start();
  Context device(tensor::cuda::make_cuda_allocator({}));
  const auto numbers = [&](const tensor::Shape& shape) {
    const std::vector<double> values(static_cast<std::size_t>(shape.numel()), 0.1);
    return cast(device, make(device, shape, values), DType::kBF16);
  };
  tensor::Tape tape;
  const Tensor x = tape.input(numbers({8, 16}), true), up = numbers({16, 64}), bias = numbers({64});
  const Tensor down = numbers({64, 16}), seed = numbers({8, 16});
  cuda_emulation::reset_counters();
  device.tape = &tape;
  const auto layout = tensor::WeightLayout::kInOut;
  const Tensor y = gelu_linear(device, linear_gelu(device, x, up, bias, layout), down, {}, layout);
  device.tape = nullptr;
  tape.seed(y, seed);
  tape.backward(device);
  EXPECT_EQ(cuda_emulation::counters().products, 4);
  EXPECT_TRUE(cuda_emulation::counters().launches.empty());
  EXPECT_TRUE(std::isfinite(sum_squares(device, tape.take_input_grad(0))));
}

TEST(CudaElementwise, WhatIsNotANumberStaysSo) {
  cuda_emulation::start();
  Context device(tensor::cuda::make_cuda_allocator({}));
  const Tensor x = make<float>(device, {1}, {NAN});
  for (const auto function : {tensor::exp, tensor::log, tensor::sqrt, tensor::relu, tensor::tanh,
                              tensor::sigmoid, tensor::silu, tensor::gelu}) {
    EXPECT_TRUE(std::isnan(function(device, x).item()));
  }
  EXPECT_TRUE(std::isnan(max_pool2d(device, x.view({1, 1, 1, 1}), {.kernel = 1}).item()));
}

}  // namespace
}  // namespace penstock::testing
