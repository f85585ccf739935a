#include "model/module.h"

#include "tensor/error.h"

namespace penstock::model {

namespace {

const LayerSpec& spec_at(const Module& module, std::int64_t layer) {
  return module.layers.at(static_cast<std::size_t>(layer));
}

}  // namespace

std::string layer_label(const Module& module, std::int64_t layer) {
  return "layer " + std::to_string(layer) + " (" + spec_at(module, layer).type + ")";
}

std::string logical_name(const Module& module, std::int64_t layer, const std::string& parameter) {
  const LayerSpec& spec = spec_at(module, layer);
  if (spec.tie_key.empty()) return std::to_string(layer) + "." + parameter;
  return "tied_modules." + spec.tie_key + "." + parameter;
}

void check_sequence_roles(const Module& module) {
  const std::int64_t last = std::ssize(module.layers) - 1;
  for (std::int64_t i = 0; i <= last; ++i) {
    const SequenceRole role = spec_at(module, i).sequence;
    const SequenceRole wanted = i == last ? SequenceRole::kLeaves
                                : i == 0  ? SequenceRole::kEnters
                                          : SequenceRole::kInside;
    if (role == wanted) continue;
    const std::string expected = i == last ? "one that puts sequences together again"
                                 : i == 0  ? "one that cuts sequences into parts"
                                           : "one that works on parts of sequences";
    throw tensor::InvalidArgument(layer_label(module, i) +
                                  ": tensor_parallel.sequence_parallel is true; expected " +
                                  expected +
                                  " here, as LayerSpec::sequence says, got another; "
                                  "set it to false for this model");
  }
}

std::unique_ptr<Layer> build_layer(const Module& module, std::int64_t layer) {
  const LayerSpec& spec = spec_at(module, layer);
  if (!spec.build) {
    throw tensor::InvalidArgument(layer_label(module, layer) + ": its spec has no build function");
  }
  std::unique_ptr<Layer> result;
  try {
    result = spec.build();
  } catch (const tensor::InvalidArgument& error) {
    throw tensor::InvalidArgument(layer_label(module, layer) + ": " + error.what());
  }
  if (result == nullptr) {
    throw tensor::InvalidArgument(layer_label(module, layer) + ": its build function gave null");
  }
  return result;
}

std::vector<std::string> parameter_names(const Module& module) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < std::ssize(module.layers); ++i) {
    const std::unique_ptr<Layer> layer = build_layer(module, i);
    for (const Parameter* parameter : layer->parameters()) {
      names.push_back(logical_name(module, i, parameter->name));
    }
  }
  return names;
}

}  // namespace penstock::model
