// The checker's own premise: it fails for wrong gradients, and only then.
#include "tests/support/gradcheck.h"

#include <vector>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tensor/ops/custom.h"
#include "tensor/ops/elementwise.h"
#include "tests/support/tensors.h"

namespace penstock::testing {
namespace {

using tensor::Backward;
using tensor::Context;
using tensor::CustomOp;
using tensor::DType;
using tensor::Saver;
using tensor::Tensor;

// 3x, with a gradient of the given factor in each pass.
CustomOp triple(double input_factor, double weight_factor) {
  const auto gradient = [](double factor) {
    return [factor](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, scale(c, n.grad(), factor));
    };
  };
  return {"triple",
          [](Context& c, std::span<const Tensor> x, Saver&) -> std::vector<Tensor> {
            return {scale(c, x[0], 3)};
          },
          gradient(input_factor), gradient(weight_factor)};
}

void check(const CustomOp& op) {
  Context context = cpu_context();
  check_gradients([&](Context& c, std::span<const Tensor> x) { return apply(c, op, x); },
                  {uniform(context, {1}, DType::kF64, -1, 1)});
}

template <class Call>
int failures_of(const Call& call) {
  ::testing::TestPartResultArray failures;
  const ::testing::ScopedFakeTestPartResultReporter reporter(
      ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
  call();
  return failures.size();
}

TEST(GradCheck, PassesRightGradients) {
  check(triple(3, 3));
}

TEST(GradCheck, FailsForAWrongGradientOfAnActivation) {
  EXPECT_EQ(failures_of([] { check(triple(3.001, 3)); }), 1);
}

TEST(GradCheck, FailsForAWrongGradientOfAWeight) {
  EXPECT_EQ(failures_of([] { check(triple(3, 2.999)); }), 2);  // added once, and once more
}

TEST(GradCheck, FailsWhenMetaGivesAnotherDType) {
  CustomOp op = triple(3, 3);
  op.forward = [](Context& c, std::span<const Tensor> x, Saver&) -> std::vector<Tensor> {
    return {scale(c, cast(c, x[0], c.device.is_meta() ? DType::kF32 : DType::kF64), 3)};
  };
  op.input_grad = [](Context& c, Backward& n) {
    n.set(0, cast(c, scale(c, n.grad(), 3), DType::kF64));
  };
  op.weight_grad = nullptr;
  EXPECT_GT(failures_of([&] { check(op); }), 0);
}

}  // namespace
}  // namespace penstock::testing
