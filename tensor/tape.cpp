#include "tensor/tape.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "tensor/error.h"
#include "tensor/ops/elementwise.h"

namespace penstock::tensor {

namespace {

// An accumulator has memory only while gradients are to be added.
void require_memory(const GradSlot& slot) {
  if (slot.grad.defined()) return;
  throw InternalError("[tape] the accumulator of a weight " + slot.grad.shape().to_string() +
                      " has no memory now");
}

}  // namespace

// The input's value on the tape; -1 when it needs no gradient.
std::int32_t Backward::value_of(int input) const {
  return tape_.edges_[tape_.nodes_[node_].first_edge + static_cast<std::uint32_t>(input)];
}

bool Backward::wants(int input) const {
  const std::int32_t value = value_of(input);
  if (value < 0) return false;
  const bool weight = tape_.values_[static_cast<std::size_t>(value)].slot != nullptr;
  return weight == weights_ || (weight && !tape_.nodes_[node_].weight_grad);
}

const Tensor& Backward::grad(int output) const {
  const Tape::Node& node = tape_.nodes_[node_];
  return tape_.values_[node.first_value + static_cast<std::uint32_t>(output)].grad;
}

const Tensor& Backward::saved(int i) const {
  const Tape::Node& node = tape_.nodes_[node_];
  return tape_.saved_[node.first_saved + static_cast<std::uint32_t>(i)].tensor;
}

const Shape& Backward::shape(int input) const {
  return tape_.values_[static_cast<std::size_t>(value_of(input))].shape;
}

void Backward::set(int input, Tensor gradient) {
  const std::int32_t value = value_of(input);
  if (value < 0) return;
  const Tape::Value& target = tape_.values_[static_cast<std::size_t>(value)];
  const bool weight = target.slot != nullptr;
  if (!gradient.defined() || gradient.shape() != target.shape ||
      (!weight && gradient.dtype() != target.dtype)) {
    tape_.throw_gradient(tape_.nodes_[node_].name, target, gradient);
  }
  if (weight && tape_.pass_ == Tape::Pass::kInput) {
    tape_.deferred_.push_back({node_, value, std::move(gradient)});
    return;
  }
  tape_.accumulate(context_, value, std::move(gradient));
}

Backward::Target Backward::target(int input) {
  const std::int32_t value = value_of(input);
  GradSlot* slot = value < 0 ? nullptr : tape_.values_[static_cast<std::size_t>(value)].slot;
  if (slot == nullptr) {
    throw InternalError(std::string("[tape] ") + tape_.nodes_[node_].name +
                        " asked for the accumulator of input " + std::to_string(input) +
                        ", which is not a trained weight");
  }
  require_memory(*slot);
  return {slot->grad, !std::exchange(slot->empty, false)};
}

DType Backward::grad_dtype(int input) const {
  const std::int32_t value = value_of(input);
  if (value < 0) return grad().dtype();
  const Tape::Value& wanted = tape_.values_[static_cast<std::size_t>(value)];
  const DType wide = compute_dtype(wanted.dtype);
  return wanted.slot != nullptr && wanted.slot->grad.dtype() == wide ? wide : wanted.dtype;
}

bool Backward::has_target(int input, DType dtype) const {
  const std::int32_t value = value_of(input);
  if (value < 0 || tape_.pass_ == Tape::Pass::kInput) return false;
  const GradSlot* slot = tape_.values_[static_cast<std::size_t>(value)].slot;
  return slot != nullptr && slot->grad.dtype() == dtype;
}

void Recorder::save(const Tensor& tensor, SavedFor use) {
  tape_->saved_.push_back({tensor.detach(), use});
  ++tape_->nodes_.back().num_saved;
}

void Recorder::save_for(int input, const Tensor& tensor) {
  const Tape::Node& node = tape_->nodes_.back();
  const std::int32_t value = tape_->edges_[node.first_edge + static_cast<std::uint32_t>(input)];
  if (value < 0) return save({});
  const bool weight = tape_->values_[static_cast<std::size_t>(value)].slot != nullptr;
  save(tensor, weight ? SavedFor::kWeightGrad : SavedFor::kInputGrad);
}

void Recorder::input_grad(GradFn function) {
  tape_->nodes_.back().input_grad = std::move(function);
}

void Recorder::weight_grad(GradFn function) {
  tape_->nodes_.back().weight_grad = std::move(function);
}

void Recorder::both_grads(const GradFn& function) {
  input_grad(function);
  weight_grad(function);
}

// A tape may come to lie where another one was, so its lives are counted from the time of its
// birth: a tensor that the other one knew is not mistaken for one of its own.
Tape::Tape()
    : generation_(
          static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count())),
      last_generation_(generation_) {}

void Tape::make_known(Tensor& tensor, GradSlot* slot) {
  tensor.tape_ = this;
  tensor.generation_ = generation_;
  tensor.value_ = static_cast<std::int32_t>(values_.size());
  values_.push_back({tensor.shape(), tensor.dtype(), slot, {}});
}

Tensor Tape::input(const Tensor& tensor, bool needs_grad) {
  Tensor result = tensor.detach();
  if (needs_grad && is_floating(tensor.dtype())) make_known(result, nullptr);
  inputs_.push_back(result.value_);
  return result;
}

Tensor Tape::weight(const Tensor& value, GradSlot* slot) {
  Tensor result = value.detach();
  if (slot == nullptr) return result;
  if (slot->grad.shape() != value.shape()) {
    throw InvalidArgument("[tape] expected a gradient accumulator of the weight's shape, " +
                          value.to_string() + ", got " + slot->grad.to_string());
  }
  make_known(result, slot);
  return result;
}

Tape::Node& Tape::add_node(const char* name, std::span<const Tensor* const> inputs) {
  Node& node = nodes_.emplace_back();
  node.name = name;
  node.segment = -1;
  node.first_edge = static_cast<std::uint32_t>(edges_.size());
  node.num_edges = static_cast<std::uint32_t>(inputs.size());
  for (const Tensor* input : inputs) {
    const std::int32_t value = needs_grad(*input) ? input->value_ : -1;
    edges_.push_back(value);
    if (value < 0) continue;
    const bool weight = values_[static_cast<std::size_t>(value)].slot != nullptr;
    (weight ? node.has_weights : node.has_activations) = true;
  }
  node.first_value = static_cast<std::uint32_t>(values_.size());
  node.first_saved = static_cast<std::uint32_t>(saved_.size());
  return node;
}

Recorder Tape::record(const char* name, std::span<const Tensor* const> inputs,
                      std::span<Tensor* const> outputs) {
  const auto known = [this](const Tensor* input) { return needs_grad(*input); };
  if (std::none_of(inputs.begin(), inputs.end(), known)) return {};
  if (!marks_only_) {
    add_node(name, inputs).num_values = static_cast<std::uint32_t>(outputs.size());
  }
  for (Tensor* output : outputs) make_known(*output, nullptr);
  return marks_only_ ? Recorder() : Recorder(this);
}

bool Tape::seed(const Tensor& output, Tensor gradient) {
  if (!needs_grad(output)) return false;
  Value& value = values_[static_cast<std::size_t>(output.value_)];
  if (gradient.shape() != value.shape || gradient.dtype() != value.dtype) {
    throw_gradient("seed", value, gradient);
  }
  if (value.slot != nullptr) {
    throw InvalidArgument("[tape] a weight itself is an output of the chunk, " +
                          output.to_string() + "; pass it through an operation first");
  }
  if (value.grad.defined()) {
    more_seeds_.emplace_back(output.value_, std::move(gradient));
  } else {
    value.grad = std::move(gradient);
  }
  return true;
}

void Tape::backward(Context& context) {
  run(context, Pass::kBoth);
}
void Tape::backward_input(Context& context) {
  run(context, Pass::kInput);
}
void Tape::backward_weight(Context& context) {
  run(context, Pass::kWeight);
}

void Tape::run(Context& context, Pass pass) {
  const NoRecord no_record(context);
  pass_ = pass;
  next_deferred_ = 0;
  for (auto& [value, gradient] : more_seeds_) accumulate(context, value, std::move(gradient));
  more_seeds_.clear();
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    run_node(context, i, pass);
    poll(context);
  }
  if (pass == Pass::kWeight) deferred_.clear();
}

bool Tape::any_output_grad(const Node& node) const {
  const auto first = values_.begin() + node.first_value;
  return std::any_of(first, first + node.num_values,
                     [](const Value& value) { return value.grad.defined(); });
}

void Tape::run_node(Context& context, std::size_t index, Pass pass) {
  const Node& node = nodes_[index];
  if (node.segment >= 0) return run_segment(context, node, pass);
  const bool reached = any_output_grad(node);
  if (pass == Pass::kWeight) apply_deferred(context, index);
  if (reached) {
    // Without a weight function the input function answers for the weights, even if alone.
    const bool input = node.input_grad && (node.has_activations || !node.weight_grad);
    if (pass != Pass::kWeight && input) {
      Backward call(*this, context, index, /*weights=*/false);
      node.input_grad(context, call);
    }
    if (pass != Pass::kInput && node.has_weights && node.weight_grad) {
      Backward call(*this, context, index, /*weights=*/true);
      node.weight_grad(context, call);
    }
  }
  drop(node, pass == Pass::kInput && reached && node.has_weights && node.weight_grad);
}

// Lets go of what the node will not need again: everything, or all but what its weight function
// needs.
void Tape::drop(const Node& node, bool keep_for_weights) {
  for (std::uint32_t i = 0; i < node.num_saved; ++i) {
    Saved& saved = saved_[node.first_saved + i];
    if (!keep_for_weights || saved.use == SavedFor::kInputGrad) saved.tensor = Tensor();
  }
  if (keep_for_weights) return;
  for (std::uint32_t i = 0; i < node.num_values; ++i) {
    values_[node.first_value + i].grad = Tensor();
  }
}

void Tape::accumulate(Context& context, std::int32_t index, Tensor gradient) {
  Value& value = values_[static_cast<std::size_t>(index)];
  if (value.slot != nullptr) {
    require_memory(*value.slot);
    add_into(context, value.slot->grad, gradient, std::exchange(value.slot->empty, false));
    return;
  }
  if (!value.grad.defined()) {
    value.grad = std::move(gradient);
  } else if (value.grad.exclusive()) {
    add_into(context, value.grad, gradient, /*overwrite=*/false);
  } else {
    value.grad = add(context, value.grad, gradient);
  }
}

void Tape::apply_deferred(Context& context, std::size_t node) {
  // I and W walk the nodes in one order, so the entries of a node come next or not at all.
  for (; next_deferred_ < deferred_.size(); ++next_deferred_) {
    Deferred& entry = deferred_[next_deferred_];
    if (entry.node != node) break;
    accumulate(context, entry.value, std::exchange(entry.grad, Tensor()));
  }
}

Tensor Tape::take_input_grad(std::size_t i) {
  if (i >= inputs_.size()) {
    throw InvalidArgument("[tape] input " + std::to_string(i) + " of " +
                          std::to_string(inputs_.size()) + " was never registered");
  }
  const std::int32_t value = inputs_[i];
  if (value < 0) return {};
  return std::exchange(values_[static_cast<std::size_t>(value)].grad, Tensor());
}

void Tape::reset() {
  nodes_.clear();
  edges_.clear();
  values_.clear();
  saved_.clear();
  inputs_.clear();
  segments_.clear();
  deferred_.clear();
  more_seeds_.clear();
  generation_ = ++last_generation_;
}

void Tape::copy_from(const Tape& other) {
  nodes_ = other.nodes_;
  edges_ = other.edges_;
  values_ = other.values_;
  saved_ = other.saved_;
  inputs_ = other.inputs_;
  deferred_ = other.deferred_;
  more_seeds_ = other.more_seeds_;
  segments_.clear();
  for (const Segment& segment : other.segments_) {
    std::unique_ptr<Tape> tape;
    if (segment.tape != nullptr) {
      tape = std::make_unique<Tape>();
      tape->copy_from(*segment.tape);
    }
    segments_.push_back({segment.forward, segment.inputs, segment.outputs, std::move(tape)});
  }
  generation_ = other.generation_;
}

void Tape::throw_gradient(const char* who, const Value& value, const Tensor& got) const {
  throw InvalidArgument("[tape] " + std::string(who) + " gave a gradient of " + got.to_string() +
                        "; expected " + std::string(name_of(value.dtype)) + " " +
                        value.shape.to_string() + ", as the value that it is for");
}

std::vector<const char*> Tape::node_names() const {
  std::vector<const char*> names;
  names.reserve(nodes_.size());
  for (const Node& node : nodes_) names.push_back(node.name);
  return names;
}

Recorder record(Context& context, const char* name, std::initializer_list<const Tensor*> inputs,
                std::initializer_list<Tensor*> outputs) {
  if (context.tape == nullptr) return {};
  return context.tape->record(name, {inputs.begin(), inputs.size()},
                              {outputs.begin(), outputs.size()});
}

}  // namespace penstock::tensor
