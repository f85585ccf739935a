#include "tests/engine/grid_run.h"

#include <algorithm>
#include <stdexcept>

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

std::vector<float> values_of(engine::Engine& engine, const std::string& name) {
  const model::StageParameter* parameter = find(engine, name);
  if (parameter == nullptr) return {};
  const std::span<float> values = parameter->parameter->value.span<float>();
  return {values.begin(), values.end()};
}

void set_values(engine::Engine& engine, const std::string& name, std::span<const float> values) {
  const model::StageParameter* parameter = find(engine, name);
  if (parameter == nullptr) return;
  const std::span<float> target = parameter->parameter->value.span<float>();
  if (target.size() != values.size()) throw std::logic_error("wrong size for " + name);
  std::ranges::copy(values, target.begin());
}

}  // namespace penstock::testing
