#include "model/parallel/class_parallel_loss.h"

#include "comm/communicator.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/tape.h"

namespace penstock::model {

namespace {

using tensor::DType;
using tensor::Tensor;

tensor::ClassLoss run(Context& context, const Tensor& logits, const Tensor& targets,
                      std::int64_t ignore_index) {
  const tensor::NoRecord no_record(context);
  const Tensor sums =
      tensor::class_sums(context, logits, targets, context.classes.value(), ignore_index);
  const Tensor all = Tensor::empty(context, {context.model.size, 2 * targets.numel()}, DType::kF64);
  if (!logits.is_meta()) context.model_group->all_gather(sums, all).wait();
  return tensor::join_class_sums(context, all, targets, ignore_index, logits.dtype());
}

}  // namespace

Tensor class_parallel_cross_entropy(Context& context, const Tensor& logits, const Tensor& targets,
                                    std::int64_t ignore_index) {
  tensor::ClassLoss result = run(context, logits, targets, ignore_index);
  if (tensor::Recorder node =
          tensor::record(context, "class_parallel_cross_entropy", {&logits}, {&result.loss})) {
    for (const Tensor& tensor : {logits, targets, result.log_sum, result.count}) {
      node.save_for(0, tensor);
    }
    node.both_grads(
        [part = context.classes.value(), ignore_index](tensor::Context& c, tensor::Backward& n) {
          if (!n.wants(0)) return;
          n.set(0, tensor::class_grads(c, n.saved(0), n.saved(1), part, ignore_index, n.saved(2),
                                       n.grad(), n.saved(3)));
        });
  }
  return result.loss;
}

}  // namespace penstock::model
