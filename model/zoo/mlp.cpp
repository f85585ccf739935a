#include "model/zoo/mlp.h"

#include <string>

#include "model/layers/activation.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tensor/error.h"

namespace penstock::model {

namespace {

LayerSpec activation_layer(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return layer<Relu>("Relu");
    case Activation::kTanh:
      return layer<Tanh>("Tanh");
    case Activation::kSilu:
      return layer<Silu>("Silu");
    case Activation::kGelu:
      return layer<Gelu>("Gelu");
  }
  throw tensor::InvalidArgument("[mlp] unknown activation " +
                                std::to_string(static_cast<int>(activation)));
}

}  // namespace

Module make_mlp(const MlpConfig& config) {
  if (config.widths.size() < 2) {
    throw tensor::InvalidArgument("[mlp] expected at least the widths of input and output, got " +
                                  std::to_string(config.widths.size()) + " widths");
  }
  for (const std::int64_t width : config.widths) {
    if (width >= 1) continue;
    throw tensor::InvalidArgument("[mlp] expected widths >= 1, got " + std::to_string(width));
  }
  Module module;
  for (std::size_t i = 0; i + 1 < config.widths.size(); ++i) {
    if (i > 0) module.layers.push_back(activation_layer(config.activation));
    module.layers.push_back(layer<Linear>("Linear", config.widths[i], config.widths[i + 1]));
  }
  module.loss = std::make_shared<MseLoss>();
  return module;
}

}  // namespace penstock::model
