// Activations that are computed again instead of kept: a segment of the forward is one node of the
// tape, and has a tape of its own while its gradients are under way.
#include <utility>

#include "tensor/error.h"
#include "tensor/tape.h"

namespace penstock::tensor {

namespace {

// Records on `tape` in a scope.
class RecordOn {
 public:
  RecordOn(Context& context, Tape& tape)
      : context_(context), before_(std::exchange(context.tape, &tape)) {}
  ~RecordOn() { context_.tape = before_; }
  RecordOn(const RecordOn&) = delete;
  RecordOn& operator=(const RecordOn&) = delete;

 private:
  Context& context_;
  Tape* before_;
};

}  // namespace

void Tape::require_activations(std::span<const Tensor> inputs) const {
  for (const Tensor& input : inputs) {
    if (!needs_grad(input) || values_[static_cast<std::size_t>(input.value_)].slot == nullptr) {
      continue;
    }
    throw InvalidArgument("[tape] an input of what is to run again is a weight, " +
                          input.to_string() + "; expected activations: weights are used inside");
  }
}

std::vector<Tensor> Tape::recompute(Context& context, std::span<const Tensor> inputs,
                                    ForwardFn forward) {
  if (marks_only_) return forward(context, inputs);
  Tape marks;
  marks.marks_only_ = true;
  std::vector<Tensor> outputs;
  std::vector<const Tensor*> edges;
  {
    std::vector<Tensor> known;
    for (const Tensor& input : inputs) {
      known.push_back(marks.input(input, needs_grad(input)));
      edges.push_back(&input);
    }
    const RecordOn scope(context, marks);
    outputs = forward(context, known);
  }
  bool any = false;
  std::vector<bool> wanted;
  for (Tensor& output : outputs) {
    wanted.push_back(marks.needs_grad(output));
    any = any || wanted.back();
    output = output.detach();
  }
  if (!any) return outputs;
  require_activations(inputs);

  Segment segment;
  for (const Tensor& input : inputs) segment.inputs.push_back(input.detach());
  Node& node = add_node("recompute", edges);
  node.segment = static_cast<std::int32_t>(segments_.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    segment.outputs.push_back(wanted[i] ? static_cast<std::int32_t>(values_.size()) : -1);
    if (!wanted[i]) continue;
    make_known(outputs[i], nullptr);
    ++node.num_values;
  }
  segment.forward = std::move(forward);
  segments_.push_back(std::move(segment));
  return outputs;
}

void Tape::run_segment(Context& context, const Node& node, Pass pass) {
  Segment& segment = segments_[static_cast<std::size_t>(node.segment)];
  if (pass == Pass::kWeight) {
    if (segment.tape != nullptr) segment.tape->backward_weight(context);
    segment.tape.reset();
    return;
  }
  if (any_output_grad(node)) run_again(context, node, segment, pass);
  segment.inputs.clear();
  segment.forward = nullptr;
  drop(node, /*keep_for_weights=*/false);
}

void Tape::run_again(Context& context, const Node& node, Segment& segment, Pass pass) {
  auto tape = std::make_unique<Tape>();
  {
    std::vector<Tensor> known;
    for (std::size_t i = 0; i < segment.inputs.size(); ++i) {
      known.push_back(tape->input(segment.inputs[i], edges_[node.first_edge + i] >= 0));
    }
    const RecordOn scope(context, *tape);
    const std::vector<Tensor> outputs = segment.forward(context, known);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (segment.outputs[i] < 0) continue;
      Tensor& grad = values_[static_cast<std::size_t>(segment.outputs[i])].grad;
      if (grad.defined()) tape->seed(outputs[i], std::move(grad));
    }
  }
  const std::size_t num_inputs = segment.inputs.size();
  segment.inputs.clear();
  pass == Pass::kInput ? tape->backward_input(context) : tape->backward(context);
  for (std::size_t i = 0; i < num_inputs; ++i) {
    Tensor gradient = tape->take_input_grad(i);
    if (gradient.defined()) accumulate(context, edges_[node.first_edge + i], std::move(gradient));
  }
  if (pass == Pass::kInput) segment.tape = std::move(tape);
}

}  // namespace penstock::tensor
