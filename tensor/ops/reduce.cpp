#include "tensor/ops/reduce.h"

#include "tensor/cpu/reduce.h"
#include "tensor/ops/check.h"

namespace penstock::tensor {

Tensor sum_to(Context& context, const Tensor& x, const Shape& shape) {
  check_floating("sum_to", context, {&x});
  if (x.shape() == shape) return x;
  Tensor out = Tensor::empty(context, shape, x.dtype());
  if (on_cpu("sum_to", context)) cpu::sum_to(context, x, out);
  return out;
}

}  // namespace penstock::tensor
