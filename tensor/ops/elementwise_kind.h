// The elementwise functions that the devices' kernels provide, shared by operations and kernels.
#pragma once

#include <cstdint>

namespace penstock::tensor {

enum class UnaryKind : std::uint8_t { kExp, kLog, kSqrt, kRelu, kTanh, kSigmoid, kSilu };

// kXGrad: the gradient g of y = X(x) carried to x, from (g, y) or, where said, from (g, x).
enum class BinaryKind : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kSqrtGrad,
  kReluGrad,
  kTanhGrad,
  kSigmoidGrad,
  kSiluGrad,  // from (g, x)
};

}  // namespace penstock::tensor
