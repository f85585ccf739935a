// The operations on a CUDA device against the CPU's results in double precision, on numbers that
// the device's dtype holds. Runs on emulated devices and on real ones.
#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/shape.h"
#include "tensor/transfer.h"
#include "tests/support/cuda_devices.h"
#include "tests/support/tensors.h"
#include "tests/tensor/cuda/op_case.h"

namespace penstock::testing {

struct ParityCase {
  OpCase op;
  OpForm form;

  std::string name() const {
    return op.name + "_" + std::string(name_of(form.elements)) + "_" +
           std::string(name_of(form.accumulators)) + "_" + std::to_string(form.offset);
  }
};

static void PrintTo(const ParityCase& each, std::ostream* out) {
  *out << each.op.name << ": " << each.form.to_string();
}

namespace {

using tensor::Context;
using tensor::Tensor;

std::vector<ParityCase> forms_of_all(const std::vector<OpCase>& ops) {
  std::vector<ParityCase> all;
  for (const OpCase& op : ops) {
    for (const OpForm& form : forms_of(op)) all.push_back({op, form});
  }
  return all;
}

std::vector<ParityCase> cases_of_models() {
  if (devices_are_emulated()) {
    return forms_of_all(model_cases({.tokens = 24, .heads = 2, .head = 8, .classes = 61}));
  }
  std::vector<ParityCase> all = forms_of_all(model_cases({}));
  const std::vector<ParityCase> wide =
      forms_of_all(model_cases({.tokens = 512, .heads = 25, .head = 64, .classes = 50304}));
  all.insert(all.end(), wide.begin(), wide.end());
  return all;
}

class CudaParity : public ::testing::TestWithParam<ParityCase> {};

TEST_P(CudaParity, ToDoublePrecisionOnTheCpu) {
  const auto& [op, form] = GetParam();
  ASSERT_GE(start_devices(), 1);
  Context cpu = cpu_context(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  OpForm exact = form;
  exact.exact = true;
  const std::vector<OpResult> wanted = run_op(op, exact, cpu);
  std::vector<OpResult> got;
  {
    Context device(tensor::cuda::make_cuda_allocator({}));
    got = run_op(op, form, device);
  }
  ASSERT_EQ(got.size(), wanted.size());
  EXPECT_EQ(compare_with_exact(op, form, got, wanted), "");
  EXPECT_EQ(finish_devices(), "");
}

TEST(CudaParityCheck, SeesOneElementThatIsWrongByMoreThanIsAllowed) {
  const std::vector<OpCase> cases = elementwise_cases();
  const auto op = std::ranges::find(cases, "tanh", &OpCase::name);
  ASSERT_NE(op, cases.end());
  for (const OpForm& form : forms_of(*op)) {
    Context cpu = cpu_context();
    const std::vector<OpResult> got = run_op(*op, form, cpu);
    OpForm exact = form;
    exact.exact = true;
    const std::vector<OpResult> wanted = run_op(*op, exact, cpu);
    ASSERT_EQ(compare_with_exact(*op, form, got, wanted), "");
    const Tensor& output = got[0].tensor;
    const std::size_t size = output.nbytes() / static_cast<std::size_t>(output.numel());
    static_cast<std::byte*>(output.raw())[100 * size - 1] ^= std::byte{0x01};  // of the exponent
    EXPECT_TRUE(compare_with_exact(*op, form, got, wanted).starts_with("output 0: "));
  }
}

// Where numbers of elements and of bytes do not fit 32 bits: 17 GB of device memory.
TEST(CudaLarge, OperationsReachElementsBehindTheSecondBillion) {
  ASSERT_GE(start_devices(), 1);
  if (devices_are_emulated()) GTEST_SKIP() << "emulated devices are small";
  {
    Context device(tensor::cuda::make_cuda_allocator({}));
    constexpr std::int64_t kHalf = (std::int64_t{1} << 30) + 32;
    Tensor x = Tensor::zeros(device, {2, kHalf}, tensor::DType::kBF16);
    Tensor second = x.rows(1, 2);
    fill(device, second, 1.5);
    EXPECT_EQ(sum_squares(device, add(device, x, x)), 9.0 * kHalf);
    const Tensor pairs = swap_axes(device, x, 0, 1);
    EXPECT_EQ(sum_squares(device, pairs), 2.25 * kHalf);
    Context host = cpu_context();
    const Tensor last =
        cast(host, to_host(host, pairs.rows(kHalf - 1, kHalf)), tensor::DType::kF32);
    EXPECT_EQ(values<float>(last), (std::vector<float>{0, 1.5f}));
  }
  EXPECT_EQ(finish_devices(), "");
}

const auto kName = [](const auto& each) { return each.param.name(); };
INSTANTIATE_TEST_SUITE_P(Small, CudaParity, ::testing::ValuesIn(forms_of_all(all_cases())), kName);
INSTANTIATE_TEST_SUITE_P(Model, CudaParity, ::testing::ValuesIn(cases_of_models()), kName);

}  // namespace
}  // namespace penstock::testing
