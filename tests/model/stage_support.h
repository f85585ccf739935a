// Small layers, models of them, and runs of a stage, for the tests of stages.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/stage.h"
#include "tensor/ops/elementwise.h"
#include "tests/support/tensors.h"

namespace penstock::model {

// x · scale + shift, over the last dimension.
struct Affine : Layer {
  explicit Affine(std::int64_t width)
      : scale(add_parameter("scale", {width}, InitRule::normal(1.0, 0.5))),
        shift(add_parameter("shift", {width}, InitRule::uniform(-1.0, 1.0))) {}
  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    const Tensor scaled = tensor::mul(context, inputs[0], context.weight(scale));
    return {tensor::add(context, scaled, context.weight(shift))};
  }
  Parameter& scale;
  Parameter& shift;
};

// x², without weights.
struct Square : Layer {
  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override {
    return {tensor::mul(context, inputs[0], inputs[0])};
  }
};

inline Context cpu() {
  return Context(tensor::make_cpu_allocator());
}

inline StageOptions in_double() {
  StageOptions options;
  options.dtype = tensor::DType::kF64;
  return options;
}

inline Stage whole(const Module& module, const Context& context,
                   const StageOptions& options = in_double()) {
  return Stage(module, 0, std::ssize(module.layers), options, context);
}

inline Tensor random_input(Context& context, const tensor::Shape& shape) {
  return testing::uniform(context, shape, tensor::DType::kF64, -1.0, 1.0, 9);
}

// Affine(3) → Square → Affine(3)
inline Module chain() {
  return {{layer<Affine>("Affine", 3), layer<Square>("Square"), layer<Affine>("Affine", 3)}, {}};
}

inline std::map<std::string, std::vector<double>> weights(const Stage& stage) {
  std::map<std::string, std::vector<double>> result;
  for (const StageParameter& entry : stage.parameters()) {
    result[entry.name] = testing::values<double>(entry.parameter->value);
  }
  return result;
}

// Forward and backward of one micro batch from gradient ones.
struct Result {
  std::vector<double> output;
  std::vector<double> input_grad;
};
inline Result run(Stage& stage, Context& context, const Tensor& input) {
  tensor::Tape tape;
  context.tape = &tape;
  const Tensor known = tape.input(input, true);
  const Tensor output = stage.forward(context, std::vector{known}, true).at(0);
  const Tensor ones = tensor::add(context, Tensor::zeros(context, output.shape(), output.dtype()),
                                  testing::make<double>(context, {1}, {1.0}));
  Result result{testing::values<double>(output), {}};
  if (tape.seed(output, ones)) tape.backward(context);
  if (const Tensor grad = tape.take_input_grad(0); grad.defined()) {
    result.input_grad = testing::values<double>(grad);
  }
  context.tape = nullptr;
  return result;
}

// A layer used before, between and after others, with another forward for its last use.
inline Module tied_module() {
  const TiedForward only_scale = [](Layer& object, Context& context, std::span<const Tensor> x) {
    auto& affine = dynamic_cast<Affine&>(object);
    return std::vector{tensor::mul(context, x[0], context.weight(affine.scale))};
  };
  return {{tied_layer<Affine>("t", "Affine", nullptr, 3), layer<Square>("Square"),
           layer<Affine>("Affine", 3), tied_layer<Affine>("t", "Affine", only_scale, 3)},
          {}};
}

}  // namespace penstock::model
