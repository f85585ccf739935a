#include "tensor/ops/swiglu.h"

#include <cmath>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/support/bitwise.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::check_same_bits;
using penstock::testing::cpu_context;
using penstock::testing::message;
using penstock::testing::uniform;
using penstock::testing::values;

TEST(SwiGlu, EqualsItsFormula) {
  Context context = cpu_context();
  const Tensor gate = uniform(context, {1003}, DType::kF64, -30, 30, 1);
  const Tensor up = uniform(context, {1003}, DType::kF64, -2, 2, 2);
  const std::vector<double> wide = values<double>(swiglu(context, gate, up));
  const Tensor narrow =
      swiglu(context, cast(context, gate, DType::kF32), cast(context, up, DType::kF32));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const double x = gate.data<double>()[i];
    const double wanted = x / (1 + std::exp(-x)) * up.data<double>()[i];
    EXPECT_NEAR(wide[i], wanted, 1e-13);
    EXPECT_NEAR(narrow.data<float>()[i], wanted, 1e-5);
  }
}

TEST(SwiGlu, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  check_gradients(
      [](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        return {swiglu(c, x[0], x[1])};
      },
      {uniform(context, {3, 7}, DType::kF64, -3, 3, 1),
       uniform(context, {3, 7}, DType::kF64, -2, 2, 2)});
}

TEST(SwiGlu, BitsDoNotDependOnThreads) {
  Context context = cpu_context();
  check_same_bits([](Context& c, std::span<const Tensor> x) { return swiglu(c, x[0], x[1]); },
                  {uniform(context, {70001}, DType::kF32, -3, 3, 1),
                   uniform(context, {70001}, DType::kF32, -2, 2, 2)},
                  2);
}

TEST(SwiGlu, NeedsEqualShapes) {
  Context context = cpu_context();
  EXPECT_EQ(message<InvalidArgument>([&] {
              swiglu(context, Tensor::zeros(context, {2}, DType::kF32),
                     Tensor::zeros(context, {3}, DType::kF32));
            }),
            "[swiglu] expected equal shapes, got [2] and [3]");
}

}  // namespace
}  // namespace penstock::tensor
