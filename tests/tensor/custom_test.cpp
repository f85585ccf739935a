#include "tensor/ops/custom.h"

#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/ops/elementwise.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::cpu_context;
using penstock::testing::Function;
using penstock::testing::message;
using penstock::testing::uniform;

// (a · b, a + b), written with a function for each pass.
CustomOp product_and_sum() {
  CustomOp op;
  op.name = "product_and_sum";
  op.forward = [](Context& c, std::span<const Tensor> x, Saver& saver) -> std::vector<Tensor> {
    saver.save(x[0]);
    saver.save(x[1]);
    return {mul(c, x[0], x[1]), add(c, x[0], x[1])};
  };
  op.input_grad = [](Context& c, Backward& n) {
    for (const int i : {0, 1}) {
      if (!n.wants(i)) continue;
      // Either output may have got no gradient.
      if (!n.grad(0).defined()) {
        n.set(i, n.grad(1));
        continue;
      }
      const Tensor from_product = mul(c, n.grad(0), n.saved(1 - i));
      n.set(i, n.grad(1).defined() ? add(c, from_product, n.grad(1)) : from_product);
    }
  };
  op.weight_grad = op.input_grad;
  return op;
}

std::vector<Tensor> two_inputs() {
  Context context = cpu_context();
  return {uniform(context, {2, 3}, DType::kF64, -1, 1, 1),
          uniform(context, {2, 3}, DType::kF64, -1, 1, 2)};
}

TEST(Custom, GradientsEqualFiniteDifferences) {
  const CustomOp op = product_and_sum();
  check_gradients([&](Context& c, std::span<const Tensor> x) { return apply(c, op, x); },
                  two_inputs());
}

TEST(Custom, TakesGradientsOfEitherOutputAlone) {
  const CustomOp op = product_and_sum();
  for (const std::size_t used : {0, 1}) {
    check_gradients(
        [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
          return {exp(c, apply(c, op, x)[used])};
        },
        two_inputs());
  }
}

TEST(Custom, OneFunctionMayServeActivationsAndWeights) {
  CustomOp op = product_and_sum();
  op.weight_grad = nullptr;
  check_gradients(
      [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
        // Between nodes of the other kind, and twice, so that the order of W is put to the test.
        std::vector<Tensor> y = apply(c, op, x);
        y = apply(c, op, std::vector<Tensor>{mul(c, y[0], x[1]), x[1]});
        return {add(c, y[1], x[0]), y[0]};
      },
      two_inputs());
}

TEST(Custom, IsOneNodeAndRunsItsForwardUnrecorded) {
  const CustomOp op = product_and_sum();
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(two_inputs()[0], true);
  apply(context, op, std::vector<Tensor>{x, x});
  ASSERT_EQ(tape.num_nodes(), 1u);
  EXPECT_STREQ(tape.node_names()[0], "product_and_sum");
  EXPECT_EQ(context.tape, &tape);
}

TEST(Custom, MayHandOnAnInput) {
  CustomOp op;
  op.name = "identity";
  op.forward = [](Context&, std::span<const Tensor> x, Saver&) -> std::vector<Tensor> {
    return {x[0]};
  };
  op.input_grad = [](Context&, Backward& n) {
    if (n.wants(0)) n.set(0, n.grad());
  };
  const Function function = [&](Context& c, std::span<const Tensor> x) -> std::vector<Tensor> {
    return {mul(c, apply(c, op, x.first(1))[0], x[1])};
  };
  check_gradients(function, two_inputs());
}

TEST(Custom, NamesItselfWhenItsGradientHasAWrongShape) {
  CustomOp op = product_and_sum();
  op.input_grad = [](Context& c, Backward& n) { n.set(1, Tensor::zeros(c, {7}, DType::kF64)); };
  Context context = cpu_context();
  Tape tape;
  context.tape = &tape;
  const Tensor x = tape.input(two_inputs()[0], true);
  const auto outputs = apply(context, op, std::vector<Tensor>{x, x});
  tape.seed(outputs[0], two_inputs()[0]);
  EXPECT_EQ(message<InvalidArgument>([&] { tape.backward(context); }),
            "[tape] product_and_sum gave a gradient of f64 [7] on cpu; expected f64 [2, 3], as the "
            "value that it is for");
}

TEST(Custom, RefusesAMissingFunction) {
  CustomOp op = product_and_sum();
  op.input_grad = nullptr;
  Context context = cpu_context();
  EXPECT_EQ(message<InvalidArgument>([&] { apply(context, op, two_inputs()); }),
            "[product_and_sum] expected a forward and an input_grad function, got an empty one");
}

}  // namespace
}  // namespace penstock::tensor
