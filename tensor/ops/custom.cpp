#include "tensor/ops/custom.h"

#include "tensor/ops/check.h"

namespace penstock::tensor {

std::vector<Tensor> apply(Context& context, const CustomOp& op, std::span<const Tensor> inputs) {
  if (!op.forward || !op.input_grad) {
    throw_invalid(op.name.c_str(), "a forward and an input_grad function", "an empty one");
  }
  Saver saver;
  std::vector<Tensor> outputs;
  {
    const NoRecord no_record(context);
    outputs = op.forward(context, inputs, saver);
  }
  if (context.tape == nullptr) return outputs;
  std::vector<const Tensor*> from;
  for (const Tensor& input : inputs) from.push_back(&input);
  std::vector<Tensor*> to;
  for (Tensor& output : outputs) {
    output = output.detach();  // the forward may hand on an input
    to.push_back(&output);
  }
  if (Recorder node = context.tape->record(op.name.c_str(), from, to)) {
    for (const auto& [tensor, use] : saver.kept_) node.save(tensor, use);
    node.input_grad([&op](Context& c, Backward& n) { op.input_grad(c, n); });
    if (op.weight_grad) node.weight_grad([&op](Context& c, Backward& n) { op.weight_grad(c, n); });
  }
  return outputs;
}

}  // namespace penstock::tensor
