#include "tensor/ops/loss.h"

#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::message;
using penstock::testing::uniform;

std::vector<Tensor> run(Context& context, std::span<const Tensor> x) {
  return {mse(context, x[0], x[1])};
}

TEST(Mse, IsTheMeanOfSquaredDifferences) {
  Context context = cpu_context();
  const Tensor prediction = make<float>(context, {2, 2}, {1, 2, 3, 4});
  const Tensor target = make<float>(context, {2, 2}, {1, 0, 6, 4});
  const Tensor loss = mse(context, prediction, target);
  EXPECT_EQ(loss.shape(), Shape{});
  EXPECT_EQ(loss.item(), (4.0 + 9.0) / 4);
}

TEST(Mse, GradientsEqualFiniteDifferences) {
  Context context = cpu_context();
  check_gradients(run, {uniform(context, {3, 5}, DType::kF64, -1, 1, 1),
                        uniform(context, {3, 5}, DType::kF64, -1, 1, 2)});
}

TEST(Mse, OfNoRowsIsZero) {
  Context context = cpu_context();
  const Tensor nothing = Tensor::empty(context, {0, 4}, DType::kF64);
  EXPECT_EQ(mse(context, nothing, nothing).item(), 0);
  check_gradients(run, {nothing, nothing});
}

TEST(Mse, NamesBothShapes) {
  Context context = cpu_context();
  const Tensor a = Tensor::zeros(context, {2, 4}, DType::kF32);
  const Tensor b = Tensor::zeros(context, {2, 3}, DType::kF32);
  EXPECT_EQ(message<InvalidArgument>([&] { mse(context, a, b); }),
            "[mse] expected equal shapes, got [2, 4] and [2, 3]");
}

}  // namespace
}  // namespace penstock::tensor
