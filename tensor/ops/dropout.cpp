#include "tensor/ops/dropout.h"

#include <string>
#include <utility>

#include "tensor/cpu/dropout.h"
#include "tensor/cuda/dropout.h"
#include "tensor/ops/check.h"
#include "tensor/ops/dispatch.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

Tensor masked(Context& context, const Tensor& x, double p, const RandomKey& key, const Tensor& ids,
              std::int64_t first_element) {
  Tensor out = Tensor::empty(context, x.shape(), x.dtype());
  on_device(
      context, [&] { cpu::dropout(context, x, p, key, ids, first_element, out); },
      [&] { cuda::dropout(context, x, p, key, ids, first_element, out); });
  return out;
}

}  // namespace

Tensor dropout(Context& context, const Tensor& x, double p,
               std::span<const std::int64_t> sample_ids, std::int64_t first_element) {
  check_floating("dropout", context, {&x});
  if (!(p >= 0 && p < 1)) throw_invalid("dropout", "p in [0, 1)", std::to_string(p));
  const auto count = static_cast<std::int64_t>(sample_ids.size());
  if (x.shape().rank() == 0 || x.dim(0) != count) {
    throw_invalid("dropout", "a sample id for each row of " + x.shape().to_string(),
                  std::to_string(count));
  }
  RandomKey key = context.random;
  ++context.random.call;
  if (p == 0) return x;
  const Tensor ids = Tensor::from(context, {count}, sample_ids);
  Tensor out = masked(context, x, p, key, ids, first_element);
  if (Recorder node = record(context, "dropout", {&x}, {&out})) {
    node.save_for(0, ids);
    node.both_grads([p, key, first_element](Context& c, Backward& n) {
      if (n.wants(0)) n.set(0, masked(c, n.grad(), p, key, n.saved(0), first_element));
    });
  }
  return out;
}

}  // namespace penstock::tensor
