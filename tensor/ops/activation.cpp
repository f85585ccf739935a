#include "tensor/ops/activation.h"

#include "tensor/ops/unary.h"

namespace penstock::tensor {

Tensor relu(Context& context, const Tensor& x) {
  return unary(context, UnaryKind::kRelu, x);
}
Tensor tanh(Context& context, const Tensor& x) {
  return unary(context, UnaryKind::kTanh, x);
}
Tensor sigmoid(Context& context, const Tensor& x) {
  return unary(context, UnaryKind::kSigmoid, x);
}
Tensor silu(Context& context, const Tensor& x) {
  return unary(context, UnaryKind::kSilu, x);
}

}  // namespace penstock::tensor
