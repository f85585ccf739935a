#include "tests/support/half_check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tensor/tape.h"
#include "tests/support/tensors.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::DType;
using tensor::GradSlot;
using tensor::Tape;
using tensor::Tensor;

std::vector<Tensor> cast_all(const std::vector<Tensor>& inputs, DType dtype) {
  Context context = cpu_context();
  std::vector<Tensor> result;
  for (const Tensor& input : inputs) {
    result.push_back(is_floating(input.dtype()) ? tensor::cast(context, input, dtype) : input);
  }
  return result;
}

enum class Form { kFull, kSplit };

struct Setup {
  const Function& function;
  std::size_t activations;
  DType elements;      // of the inputs
  DType accumulators;  // of the weights' gradients
  DType seeds;         // rounded to this, then converted to the outputs' dtype
};

struct Run {
  Run(const Setup& set, Context& where, const std::vector<Tensor>& inputs)
      : setup(set), context(where), slots(inputs.size()) {
    context.tape = &tape;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool weight = i >= setup.activations && is_floating(inputs[i].dtype());
      if (weight) slots[i].grad = Tensor::zeros(context, inputs[i].shape(), setup.accumulators);
      leaves.push_back(i < setup.activations
                           ? tape.input(inputs[i], true)
                           : tape.weight(inputs[i], weight ? &slots[i] : nullptr));
    }
    forward();
  }

  void forward() {
    context.random = {};
    outputs = setup.function(context, leaves);
  }

  void backward(Form form) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const tensor::NoRecord no_record(context);
      const Tensor seed = uniform(context, outputs[i].shape(), DType::kF64, -1, 1, 77 + i);
      tape.seed(outputs[i], cast(context, cast(context, seed, setup.seeds), outputs[i].dtype()));
    }
    if (form == Form::kFull) {
      tape.backward(context);
    } else {
      tape.backward_input(context);
      tape.backward_weight(context);
    }
    grads.clear();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      grads.push_back(i < setup.activations ? tape.take_input_grad(i) : slots[i].grad);
    }
  }

  Setup setup;
  Context& context;
  Tape tape;
  std::vector<GradSlot> slots;
  std::vector<Tensor> leaves, outputs, grads;
};

double unit(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0x1p-22;
  }
}

void expect_close(const Tensor& got, const Tensor& wanted, double tolerance, double factor = 1) {
  ASSERT_EQ(got.defined(), wanted.defined());
  if (!got.defined()) return;
  ASSERT_EQ(got.shape(), wanted.shape());
  Context context = cpu_context();
  const auto numbers = values<double>(cast(context, got, DType::kF64));
  const auto exact = values<double>(wanted);
  double squares = 0;
  for (const double value : exact) squares += value * value;
  const double typical = exact.empty() ? 0 : std::sqrt(squares / static_cast<double>(exact.size()));
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::fabs(numbers[i] - factor * exact[i]);
    worst = std::max(worst, std::isfinite(error) && error == 0
                                ? 0.0
                                : error / (factor * (std::fabs(exact[i]) + typical)));
    if (!std::isfinite(error)) worst = INFINITY;
  }
  EXPECT_LE(worst, tolerance) << "that is " << worst / tolerance << " times what is allowed";
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_TRUE(std::equal(a.raw(), a.raw() + a.nbytes(), b.raw()));
}

void check_meta(const Run& real, const Setup& setup, const std::vector<Tensor>& inputs,
                std::int64_t live_bytes) {
  const Context elsewhere = meta_context();
  std::vector<Tensor> shapes;
  for (const Tensor& input : inputs) {
    shapes.push_back(Tensor::empty(elsewhere, input.shape(), input.dtype()));
  }
  Context meta = meta_context();
  const Run planned(setup, meta, shapes);
  ASSERT_EQ(planned.outputs.size(), real.outputs.size());
  for (std::size_t i = 0; i < real.outputs.size(); ++i) {
    EXPECT_EQ(planned.outputs[i].dtype(), real.outputs[i].dtype());
    EXPECT_EQ(planned.outputs[i].shape(), real.outputs[i].shape());
  }
  EXPECT_EQ(meta.allocator->counters()->live_bytes(), live_bytes);
}

void check_dtype(const Setup& setup, const std::vector<Tensor>& inputs, const HalfCheck& options) {
  const std::vector<Tensor> rounded = cast_all(inputs, setup.elements);
  Context context = cpu_context();
  Run run(setup, context, rounded);
  check_meta(run, setup, rounded, context.allocator->counters()->live_bytes());
  run.backward(Form::kFull);
  Context other = cpu_context();
  Run split(setup, other, rounded);
  split.backward(Form::kSplit);
  Context wide = cpu_context();
  Setup in_double = setup;
  in_double.elements = DType::kF64;
  in_double.accumulators = DType::kF64;
  Run exact(in_double, wide, cast_all(rounded, DType::kF64));
  exact.backward(Form::kFull);

  ASSERT_EQ(run.outputs.size(), exact.outputs.size());
  for (std::size_t i = 0; i < run.outputs.size(); ++i) {
    SCOPED_TRACE("output " + std::to_string(i));
    expect_close(run.outputs[i], exact.outputs[i], options.output * unit(run.outputs[i].dtype()));
  }
  const auto allowed = [&](std::size_t i) {
    const bool narrow = i < options.activations || setup.accumulators == setup.elements;
    if (narrow || options.wide_grad == 0) return options.grad * unit(setup.elements);
    return options.wide_grad * unit(DType::kF32);
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE("gradient of input " + std::to_string(i));
    expect_close(run.grads[i], exact.grads[i], allowed(i));
    expect_same_bits(run.grads[i], split.grads[i]);
  }
  // Once more into the same accumulators.
  Run again(setup, context, rounded);
  again.slots = run.slots;
  again.backward(Form::kFull);
  for (std::size_t i = options.activations; i < inputs.size(); ++i) {
    SCOPED_TRACE("gradient of input " + std::to_string(i) + ", added once more");
    expect_close(again.grads[i], exact.grads[i], 2 * allowed(i), 2);
  }
}

}  // namespace

void check_half(const Function& function, const std::vector<Tensor>& inputs,
                const HalfCheck& options) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const DType accumulators : {dtype, DType::kF32}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + ", gradients in " +
                   std::string(name_of(accumulators)));
      check_dtype({function, options.activations, dtype, accumulators, dtype}, inputs, options);
    }
  }
}

}  // namespace penstock::testing
