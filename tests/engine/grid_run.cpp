#include "tests/engine/grid_run.h"

#include <algorithm>
#include <stdexcept>

#include "tensor/ops/cast.h"
#include "tensor/transfer.h"

namespace penstock::testing {

namespace {

const model::StageParameter* find(engine::Engine& engine, const std::string& name) {
  for (const auto& stage : engine.stages()) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (parameter.name == name) return &parameter;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<float> floats_of(const tensor::Tensor& tensor) {
  tensor::Context host(tensor::make_cpu_allocator());
  const tensor::Tensor copy =
      tensor::cast(host, tensor::to_host(host, tensor), tensor::DType::kF32);
  const std::span<float> values = copy.span<float>();
  return {values.begin(), values.end()};
}

std::vector<float> values_of(engine::Engine& engine, const std::string& name) {
  const model::StageParameter* parameter = find(engine, name);
  if (parameter == nullptr) return {};
  return floats_of(parameter->parameter->value);
}

std::vector<std::size_t> elements_of(const model::StageParameter& parameter) {
  const tensor::Shape& whole = parameter.parameter->shape;
  const model::Shard& shard = parameter.shard;
  std::vector<std::size_t> elements;
  for (std::int64_t i = 0; i < whole.numel(); ++i) {
    bool mine = shard.is_everything();
    if (!mine) {
      std::int64_t inner = 1;
      for (int axis = shard.axis + 1; axis < whole.rank(); ++axis) inner *= whole.dim(axis);
      const std::int64_t index = i / inner % whole.dim(shard.axis);
      for (const model::Shard::Range& range : shard.ranges) {
        mine = mine || (index >= range.whole && index < range.whole + range.count);
      }
    }
    if (mine) elements.push_back(static_cast<std::size_t>(i));
  }
  return elements;
}

void set_values(engine::Engine& engine, const std::string& name, std::span<const float> values) {
  const model::StageParameter* parameter = find(engine, name);
  if (parameter == nullptr) return;
  if (parameter->parameter->shape.numel() != std::ssize(values)) {
    throw std::logic_error("wrong size for " + name);
  }
  std::size_t own = 0;
  const tensor::Tensor& value = parameter->parameter->value;
  std::vector<float> target(static_cast<std::size_t>(value.numel()));
  for (const std::size_t element : elements_of(*parameter)) target[own++] = values[element];
  const tensor::Context host(tensor::make_cpu_allocator());
  tensor::write_elements(value, tensor::Tensor::from<float>(host, value.shape(), target));
}

}  // namespace penstock::testing
