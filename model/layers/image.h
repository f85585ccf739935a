// Layers for images, tensors [rows, channels, height, width].
#pragma once

#include <cstdint>
#include <optional>

#include "model/layer.h"
#include "tensor/ops/conv.h"
#include "tensor/ops/pool.h"

namespace penstock::model {

struct Conv2dLayerOptions {
  tensor::Size2d stride = 1;
  tensor::Size2d padding = 0;
  bool bias = true;
  // How the weight and the bias start; by default as PyTorch's: uniform within ±1/sqrt(in · kernel
  // height · kernel width).
  std::optional<InitRule> weight_init = std::nullopt;
  std::optional<InitRule> bias_init = std::nullopt;
};

// x [rows, in, height, width] to [rows, out, …], the last two as tensor::conv2d gives them.
// Parameters: weight [out, in, kernel height, kernel width]; bias [out].
class Conv2d final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  Conv2d(std::int64_t in, std::int64_t out, tensor::Size2d kernel,
         const Conv2dLayerOptions& options = {});

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;

 private:
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  tensor::Conv2dOptions options_;
};

// The largest element of each window; see tensor::max_pool2d.
class MaxPool2d final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit MaxPool2d(const tensor::MaxPool2dOptions& options);

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;

 private:
  tensor::MaxPool2dOptions options_;
};

// x [rows, …] to [rows, elements of a row].
class Flatten final : public Layer {
 public:
  static constexpr bool kReplayable = true;

  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs) override;
};

}  // namespace penstock::model
