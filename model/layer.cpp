#include "model/layer.h"

#include <algorithm>

#include "tensor/error.h"

namespace penstock::model {

namespace {

void check_new_name(std::span<Parameter* const> parameters, const std::string& name) {
  const bool taken = std::any_of(parameters.begin(), parameters.end(),
                                 [&name](const Parameter* other) { return other->name == name; });
  if (name.empty() || taken) {
    throw tensor::InvalidArgument("[layer] parameter name \"" + name + "\" is " +
                                  (taken ? "declared twice" : "empty") +
                                  "; give each parameter and child of a layer its own name");
  }
}

}  // namespace

std::int64_t Layer::num_elements() const {
  std::int64_t total = 0;
  for (const Parameter* parameter : parameters_) total += parameter->shape.numel();
  return total;
}

Parameter& Layer::add_parameter(std::string name, const tensor::Shape& shape, InitRule init,
                                Split split) {
  check_new_name(parameters_, name);
  auto parameter = std::make_unique<Parameter>();
  parameter->name = std::move(name);
  parameter->shape = shape;
  parameter->init = init;
  parameter->split = std::move(split);
  parameter->index = parameters_.size();
  parameters_.push_back(parameter.get());
  own_.push_back(std::move(parameter));
  return *own_.back();
}

void Layer::adopt(const std::string& name, std::unique_ptr<Layer> child) {
  for (Parameter* parameter : child->parameters_) {
    std::string full_name = name + "." + parameter->name;
    check_new_name(parameters_, full_name);
    parameter->name = std::move(full_name);
    parameter->index = parameters_.size();
    parameters_.push_back(parameter);
  }
  children_.push_back(std::move(child));
}

void expect_inputs(std::string_view layer, std::span<const Tensor> inputs, std::size_t count) {
  if (inputs.size() == count) return;
  throw tensor::InvalidArgument("[" + std::string(layer) + "] expected " + std::to_string(count) +
                                (count == 1 ? " input" : " inputs") + ", got " +
                                std::to_string(inputs.size()));
}

}  // namespace penstock::model
