#include "tests/support/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
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

enum class Role { kActivation, kWeight, kFrozen };
using Roles = std::vector<Role>;
enum class Form { kFull, kInputThenWeight };

std::string name_of(const Roles& roles) {
  std::string text;
  for (Role role : roles) text += "awf"[static_cast<int>(role)];
  return text;
}

// r, the fixed gradient of an output: distinct numbers of both signs and of size about 1.
Tensor seed_for(Context& context, const Tensor& output, std::size_t index) {
  return uniform(context, output.shape(), output.dtype(), -1, 1, 77 + index);
}

double loss(Context& context, const std::vector<Tensor>& outputs) {
  long double total = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dtype() != DType::kF64) continue;
    const Tensor seed = seed_for(context, outputs[i], i);
    const auto numbers = outputs[i].span<double>();
    const auto weights = seed.span<double>();
    for (std::size_t j = 0; j < numbers.size(); ++j) total += numbers[j] * weights[j];
  }
  return static_cast<double>(total);
}

Tensor copy(Context& context, const Tensor& x) {
  return Tensor::from_bytes(context, x.shape(), x.dtype(), {x.raw(), x.nbytes()});
}

// Central differences of the loss for each element of each f64 input.
std::vector<std::vector<double>> differences(const Function& function,
                                             const std::vector<Tensor>& inputs, double step) {
  std::vector<std::vector<double>> result(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != DType::kF64) continue;
    Context context = cpu_context();
    std::vector<Tensor> moved = inputs;
    moved[i] = copy(context, inputs[i]);
    for (double& element : moved[i].span<double>()) {
      const double before = element;
      const auto at = [&](double value) {
        element = value;
        context.random = {};
        return loss(context, function(context, moved));
      };
      const double slope = (at(before + step) - at(before - step)) / (2 * step);
      element = before;
      result[i].push_back(slope);
    }
  }
  return result;
}

// One forward on a tape, with the inputs in given roles.
struct Run {
  Run(const Function& function, Context& where, const std::vector<Tensor>& inputs,
      const Roles& input_roles)
      : context(where), roles(input_roles), slots(inputs.size()) {
    context.tape = &tape;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Role role = roles[i];
      if (role == Role::kWeight) {
        slots[i].grad = Tensor::empty(context, inputs[i].shape(), inputs[i].dtype());
        if (!context.device.is_meta()) {  // what an accumulator holds at first must not matter
          std::ranges::fill(slots[i].grad.span<double>(), std::numeric_limits<double>::quiet_NaN());
        }
      }
      leaves.push_back(role == Role::kActivation
                           ? tape.input(inputs[i], true)
                           : tape.weight(inputs[i], role == Role::kWeight ? &slots[i] : nullptr));
    }
    forward(function);
  }

  void forward(const Function& function) {
    context.random = {};
    outputs = function(context, leaves);
  }

  void backward(Form form) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (tape.needs_grad(outputs[i])) {
        const tensor::NoRecord no_record(context);
        tape.seed(outputs[i], seed_for(context, outputs[i], i));
      }
    }
    if (form == Form::kFull) {
      tape.backward(context);
    } else {
      tape.backward_input(context);
      tape.backward_weight(context);
    }
    std::size_t input = 0;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      grads.push_back(roles[i] == Role::kActivation ? tape.take_input_grad(input++)
                      : slots[i].empty              ? Tensor()
                                                    : slots[i].grad);
    }
  }

  Context& context;
  Tape tape;
  Roles roles;
  std::vector<GradSlot> slots;
  std::vector<Tensor> leaves, outputs, grads;
};

void expect_close(const Tensor& grad, const std::vector<double>& slopes, double factor,
                  double tolerance) {
  for (std::size_t j = 0; j < slopes.size(); ++j) {
    const double wanted = factor * slopes[j];
    const double got = grad.defined() ? grad.span<double>()[j] : 0.0;
    EXPECT_LE(std::fabs(got - wanted), tolerance * std::max(1.0, std::fabs(wanted)))
        << "element " << j << ": tape " << got << ", difference " << wanted;
  }
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_TRUE(std::equal(a.raw(), a.raw() + a.nbytes(), b.raw()));  // no elements: null, null
}

void check_roles(const Function& function, const std::vector<Tensor>& inputs, const Roles& roles,
                 const std::vector<std::vector<double>>& slopes, const GradCheck& options) {
  SCOPED_TRACE("inputs as (a)ctivation, (w)eight, (f)rozen: " + name_of(roles));
  Context context = cpu_context();
  Run full(function, context, inputs, roles);
  full.backward(Form::kFull);
  Run split(function, context, inputs, roles);
  split.backward(Form::kInputThenWeight);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (roles[i] == Role::kFrozen) continue;
    SCOPED_TRACE("input " + std::to_string(i));
    expect_close(full.grads[i], slopes[i], 1, options.tolerance);
    expect_same_bits(full.grads[i], split.grads[i]);
  }
  // Once more into the same accumulators: the weights' gradients double.
  Run again(function, context, inputs, roles);
  for (std::size_t i = 0; i < inputs.size(); ++i) again.slots[i] = full.slots[i];
  again.backward(Form::kFull);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (roles[i] == Role::kWeight) {
      expect_close(again.grads[i], slopes[i], 2, 2 * options.tolerance);
    }
  }
}

// The forward's and the backward's shapes and dtypes on the meta device.
void check_meta(const Function& function, const std::vector<Tensor>& inputs, const Roles& roles) {
  SCOPED_TRACE("meta, inputs as " + name_of(roles));
  Context context = cpu_context();
  Run real(function, context, inputs, roles);
  const Context elsewhere = meta_context();  // the inputs count for neither run
  std::vector<Tensor> shapes;
  for (const Tensor& input : inputs) {
    shapes.push_back(Tensor::empty(elsewhere, input.shape(), input.dtype()));
  }
  Context meta = meta_context();
  Run planned(function, meta, shapes, roles);
  ASSERT_EQ(planned.outputs.size(), real.outputs.size());
  for (std::size_t i = 0; i < real.outputs.size(); ++i) {
    EXPECT_TRUE(planned.outputs[i].is_meta());
    EXPECT_EQ(planned.outputs[i].shape(), real.outputs[i].shape());
    EXPECT_EQ(planned.outputs[i].dtype(), real.outputs[i].dtype());
  }
  const auto names = real.tape.node_names();
  const auto planned_names = planned.tape.node_names();
  EXPECT_TRUE(std::equal(names.begin(), names.end(), planned_names.begin(), planned_names.end(),
                         [](const char* a, const char* b) { return std::strcmp(a, b) == 0; }));
  // What the tape holds, which is what a memory plan counts.
  EXPECT_EQ(meta.allocator->counters()->live_bytes(), context.allocator->counters()->live_bytes());
  real.backward(Form::kFull);
  planned.backward(Form::kFull);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(planned.grads[i].defined(), real.grads[i].defined());
    if (!real.grads[i].defined()) continue;
    EXPECT_EQ(real.grads[i].shape(), inputs[i].shape());
    EXPECT_EQ(planned.grads[i].shape(), inputs[i].shape());
  }
}

}  // namespace

void check_gradients(const Function& function, const std::vector<Tensor>& inputs,
                     const GradCheck& options) {
  const auto slopes = differences(function, inputs, options.step);
  std::size_t ways = 1;
  for (std::size_t i = 0; i < inputs.size(); ++i) ways *= 3;
  for (std::size_t way = 0; way < ways; ++way) {
    Roles roles;
    bool sensible = true;
    std::size_t rest = way;
    for (const Tensor& input : inputs) {
      roles.push_back(static_cast<Role>(rest % 3));
      rest /= 3;
      sensible &= input.dtype() == DType::kF64 || roles.back() == Role::kFrozen;
    }
    if (!sensible) continue;
    check_roles(function, inputs, roles, slopes, options);
    check_meta(function, inputs, roles);
  }
}

}  // namespace penstock::testing
