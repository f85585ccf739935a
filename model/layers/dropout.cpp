#include "model/layers/dropout.h"

#include <string>

#include "tensor/error.h"
#include "tensor/ops/dropout.h"

namespace penstock::model {

void check_dropout(double rate) {
  if (rate >= 0.0 && rate < 1.0) return;
  throw tensor::InvalidArgument("[dropout] expected a rate in [0, 1), got " + std::to_string(rate));
}

Tensor dropout(Context& context, const Tensor& x, double rate) {
  if (!context.training || rate == 0.0) return x;
  // A row of a part of the sequence begins in the middle of the sample's row.
  const bool part = context.model.sequence_parallel && x.dim(0) > 0;
  const std::int64_t first = part ? context.model.rank * (x.numel() / x.dim(0)) : 0;
  return tensor::dropout(context, x, rate, context.sample_ids, first);
}

}  // namespace penstock::model
