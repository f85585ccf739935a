// MLP: linear layers with an activation between them, for regression.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/module.h"

namespace penstock::model {

enum class Activation : std::uint8_t { kRelu, kTanh, kSilu, kGelu };

struct MlpConfig {
  std::vector<std::int64_t> widths = {16, 16, 16};  // input, hidden ones, output
  Activation activation = Activation::kTanh;

  bool operator==(const MlpConfig&) const = default;
};

// Linear layers and activations in turn, each a layer of its own, ending with a Linear; the loss is
// the mean squared error. Throws InvalidArgument for fewer than two widths or one below 1.
Module make_mlp(const MlpConfig& config);

}  // namespace penstock::model
