#include "tensor/ops/elementwise.h"

#include "tensor/error.h"

namespace penstock::tensor {

Tensor add(Context&, const Tensor&, const Tensor&) {
  throw Unsupported("[add] not yet");
}
void add_into(Context&, Tensor&, const Tensor&, bool) {
  throw Unsupported("[add_into] not yet");
}

}  // namespace penstock::tensor
