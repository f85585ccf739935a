#include "engine/pass_graphs.h"

#include <algorithm>

#include "tensor/error.h"

namespace penstock::engine {

using tensor::Tape;
using tensor::Tensor;

namespace {

// Nothing else may use the device's stream in this scope: transfers do not move on meanwhile.
class Alone {
 public:
  explicit Alone(model::Context& context)
      : context_(context), progress_(std::exchange(context.progress, nullptr)) {}
  ~Alone() { context_.progress = progress_; }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  model::Context& context_;
  tensor::Progress* progress_;
};

void copy_all(tensor::Allocator& memory, const std::vector<Tensor>& from,
              const std::vector<Tensor>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].defined()) memory.copy(to[i].raw(), from[i].raw(), to[i].nbytes());
  }
}

}  // namespace

std::string obstacle_to_graphs(const model::Module& module, std::int64_t begin, std::int64_t end) {
  for (std::int64_t layer = begin; layer < end; ++layer) {
    if (module.layers[static_cast<std::size_t>(layer)].replayable) continue;
    return layer_label(module, layer) + " does not say that it is replayable";
  }
  const bool last = end == std::ssize(module.layers);
  if (last && module.loss != nullptr && !module.loss->replayable()) {
    return "the loss does not say that it is replayable";
  }
  return {};
}

PassGraphs::PassGraphs(std::shared_ptr<tensor::Allocator> memory,
                       std::vector<std::string> obstacles, std::function<void(std::string)> tell)
    : memory_(std::move(memory)), obstacles_(std::move(obstacles)), tell_(std::move(tell)) {}

model::LossResult PassGraphs::forward(Place place, model::Stage& stage, model::Context& context,
                                      PipeBuffer& buffer, const ModelEnd* end) {
  Slot& slot = slots_[place];
  slot.micro_batch = -1;
  if (!context.training || (end != nullptr && end->outputs != nullptr)) {
    return run_forward(stage, context, buffer, end);
  }
  Set* set = nullptr;
  if (const std::string reason = obstacle(place, context, buffer); !reason.empty()) {
    say(place, Kind::kForward, reason);
  } else {
    set = set_of(slot, signature_of(stage, context, buffer, end != nullptr && end->compute_loss));
    if (set == nullptr) {
      say(place, Kind::kForward,
          "its micro batches have more than " + std::to_string(kMostShapes) + " sets of shapes");
    }
  }
  if (set == nullptr || set->forward_pass.phase == Phase::kNew ||
      set->forward_pass.phase == Phase::kPlain) {
    model::LossResult result;
    run_plainly(set == nullptr ? nullptr : &set->forward_pass, place, Kind::kForward, context,
                [&] { result = run_forward(stage, context, buffer, end); });
    return result;
  }
  const Given given{.inputs = buffer.inputs,
                    .labels = buffer.labels,
                    .output_grads = {},
                    .named = context.named_inputs,
                    .loss_grad = {}};
  if (set->forward_pass.phase == Phase::kSeen) {
    capture_forward(*set, stage, context, buffer, end);
  }
  slot.micro_batch = buffer.micro_batch;
  slot.set = set;
  slot.input_pass = nullptr;
  return replay_forward(*set, context, buffer, given);
}

void PassGraphs::backward(Place place, model::Stage& stage, model::Context& context,
                          PipeBuffer& buffer, Tensor loss_grad, TapePass function) {
  Slot& slot = slots_[place];
  Set* set = current(slot, buffer);
  const auto work = [&] { run_backward(context, buffer, std::move(loss_grad), function); };
  const Kind kind = function == &Tape::backward ? Kind::kBackward : Kind::kBackwardInput;
  if (set == nullptr) return run_plainly(nullptr, place, kind, context, work);
  // An input pass writes no gradients of weights.
  Backward* pass = backward_of(
      *set, place, kind, kind == Kind::kBackward ? empty_gradients(stage) : std::vector<bool>());
  if (pass == nullptr || pass->phase == Phase::kNew || pass->phase == Phase::kPlain) {
    buffer.tape.copy_from(set->tape);
    run_plainly(pass, place, kind, context, work);
    for (Tensor& gradient : buffer.input_grads) gradient = copy_of(context, gradient);
    return;
  }
  const Given given{.inputs = {},
                    .labels = {},
                    .output_grads = buffer.output_grads,
                    .named = nullptr,
                    .loss_grad = loss_grad};
  if (pass->phase == Phase::kSeen) {
    if (loss_grad.defined() && !set->loss_grad.defined()) {
      set->loss_grad = kept_like(context, {loss_grad}).front();
    }
    if (set->output_grads.empty()) set->output_grads = kept_like(context, buffer.output_grads);
    capture_backward(*set, *pass, stage, context, buffer, function);
  }
  if (kind == Kind::kBackwardInput) slot.input_pass = pass;
  replay_backward(*set, *pass, stage, context, buffer, given);
}

void PassGraphs::backward_weight(Place place, model::Stage& stage, model::Context& context,
                                 PipeBuffer& buffer) {
  Slot& slot = slots_[place];
  Set* set = current(slot, buffer);
  const auto work = [&] { buffer.tape.backward_weight(context); };
  if (set == nullptr || slot.input_pass == nullptr) {
    return run_plainly(nullptr, place, Kind::kBackwardWeight, context, work);
  }
  const Tape& tape = slot.input_pass->tape;
  Backward* pass = backward_of(*set, place, Kind::kBackwardWeight, empty_gradients(stage));
  if (pass == nullptr || pass->phase == Phase::kNew || pass->phase == Phase::kPlain) {
    buffer.tape.copy_from(tape);
    return run_plainly(pass, place, Kind::kBackwardWeight, context, work);
  }
  if (pass->phase == Phase::kSeen) {
    capture_pass(*pass, context, [&] {
      set_empty_gradients(stage, pass->empty_before);
      buffer.tape.copy_from(tape);
      work();
    });
    pass->empty_after = empty_gradients(stage);
    buffer.tape.reset();
  }
  launch(*pass);
  set_empty_gradients(stage, pass->empty_after);
}

// ---- which graphs

std::string PassGraphs::obstacle(Place place, const model::Context& context,
                                 const PipeBuffer& buffer) const {
  const std::string& of_layers = obstacles_[static_cast<std::size_t>(place.chunk.value)];
  if (!of_layers.empty()) return of_layers;
  const auto elsewhere = [&](const Tensor& tensor) { return tensor.device() != context.device; };
  bool any = std::ranges::any_of(buffer.inputs, elsewhere) ||
             std::ranges::any_of(buffer.labels, elsewhere);
  if (context.named_inputs != nullptr) {
    for (const auto& [name, tensor] : *context.named_inputs) any = any || elsewhere(tensor);
  }
  return any ? "a tensor of the micro batch is not on the device" : "";
}

PassGraphs::Set* PassGraphs::set_of(Slot& slot, PassSignature signature) {
  for (const auto& set : slot.sets) {
    if (set->signature == signature) return set.get();
  }
  if (slot.sets.size() == kMostShapes) return nullptr;
  slot.sets.push_back(std::make_unique<Set>());
  slot.sets.back()->signature = std::move(signature);
  return slot.sets.back().get();
}

PassGraphs::Backward* PassGraphs::backward_of(Set& set, Place place, Kind kind,
                                              std::vector<bool> empty) {
  for (const auto& pass : set.backwards) {
    if (pass->kind == kind && pass->empty_before == empty) return pass.get();
  }
  if (set.backwards.size() == kMostBackwards) {
    say(place, kind,
        "it finds other gradients empty than " + std::to_string(kMostBackwards) +
            " backwards before it");
    return nullptr;
  }
  set.backwards.push_back(std::make_unique<Backward>());
  set.backwards.back()->kind = kind;
  set.backwards.back()->empty_before = std::move(empty);
  return set.backwards.back().get();
}

// The graphs that the buffer's forward was launched from; null: it ran as ever.
PassGraphs::Set* PassGraphs::current(Slot& slot, const PipeBuffer& buffer) const {
  return slot.micro_batch >= 0 && slot.micro_batch == buffer.micro_batch ? slot.set : nullptr;
}

// ---- how passes run

void PassGraphs::run_plainly(Pass* pass, Place place, Kind kind, model::Context& context,
                             const std::function<void()>& work) {
  ++use_.plain;
  if (pass == nullptr || pass->phase == Phase::kPlain) return work();
  const Alone alone(context);
  const std::string reason = tensor::cuda::run_watched(*memory_, work);
  pass->phase = reason.empty() ? Phase::kSeen : Phase::kPlain;
  if (!reason.empty()) say(place, kind, "it " + reason);
}

void PassGraphs::capture_pass(Pass& pass, model::Context& context,
                              const std::function<void()>& work) {
  const Alone alone(context);
  pass.graph = tensor::cuda::capture(*memory_, work);
  pass.phase = Phase::kCaptured;
  ++use_.captured;
}

void PassGraphs::launch(Pass& pass) {
  pass.graph->launch();
  ++use_.replayed;
}

void PassGraphs::say(Place place, Kind kind, const std::string& reason) {
  constexpr const char* kNames[] = {"forward", "backward", "backward of the inputs",
                                    "backward of the weights"};
  const std::string text = "[graphs] the " + std::string(kNames[static_cast<std::size_t>(kind)]) +
                           " of chunk " + std::to_string(place.chunk.value) +
                           " is not replayed as a CUDA graph: " + reason;
  if (told_.insert(text).second) tell_(text);
}

void PassGraphs::capture_forward(Set& set, model::Stage& stage, model::Context& context,
                                 PipeBuffer& buffer, const ModelEnd* end) {
  set.inputs = kept_like(context, buffer.inputs);
  set.labels = kept_like(context, buffer.labels);
  const model::NamedTensors* given = context.named_inputs;
  if (given != nullptr) {
    for (const auto& [name, tensor] : *given) {
      set.named.emplace(name, kept_like(context, {tensor}).front());
    }
    context.named_inputs = &set.named;
  }
  capture_pass(set.forward_pass, context, [&] {
    set.result = {};
    buffer.tape.reset();
    buffer.outputs.clear();
    buffer.inputs = set.inputs;
    buffer.labels = set.labels;
    set.result = run_forward(stage, context, buffer, end);
  });
  context.named_inputs = given;
  set.input_shells = buffer.inputs;
  set.outputs = std::exchange(buffer.outputs, {});
  set.output_shells = buffer.output_shells;
  set.output_needs_grad = buffer.output_needs_grad;
  set.loss_shell = buffer.loss;
  set.tape.copy_from(buffer.tape);
  for (const Tensor& output : set.outputs) keep(output);
  if (set.result.loss.defined()) keep(set.result.loss);
  for (const auto& [name, tensor] : set.result.extras) keep(tensor);
  keep(set.tape);
}

model::LossResult PassGraphs::replay_forward(Set& set, model::Context& context, PipeBuffer& buffer,
                                             const Given& given) {
  copy_all(*memory_, given.inputs, set.inputs);
  copy_all(*memory_, given.labels, set.labels);
  for (const auto& [name, tensor] : set.named) {
    copy_all(*memory_, {given.named->at(name)}, {tensor});
  }
  launch(set.forward_pass);
  buffer.inputs = set.input_shells;
  buffer.labels.clear();
  buffer.tape.reset();
  buffer.outputs = copies_of(context, set.outputs);
  buffer.output_shells = set.output_shells;
  buffer.output_needs_grad = set.output_needs_grad;
  buffer.loss = set.loss_shell;
  model::LossResult result;
  if (set.result.loss.defined()) result.loss = copy_of(context, set.result.loss);
  for (const auto& [name, tensor] : set.result.extras) {
    result.extras.emplace_back(name, copy_of(context, tensor));
  }
  return result;
}

void PassGraphs::capture_backward(Set& set, Backward& pass, model::Stage& stage,
                                  model::Context& context, PipeBuffer& buffer, TapePass function) {
  capture_pass(pass, context, [&] {
    if (pass.kind == Kind::kBackward) set_empty_gradients(stage, pass.empty_before);
    buffer.input_grads.clear();
    buffer.tape.copy_from(set.tape);
    buffer.inputs = set.input_shells;
    buffer.output_shells = set.output_shells;
    buffer.output_grads = set.output_grads;
    buffer.loss = set.loss_shell;
    run_backward(context, buffer, set.loss_grad, function);
  });
  pass.empty_after = empty_gradients(stage);
  pass.input_grads = std::exchange(buffer.input_grads, {});
  if (pass.kind == Kind::kBackwardInput) pass.tape.copy_from(buffer.tape);
  for (const Tensor& gradient : pass.input_grads) keep(gradient);
  keep(pass.tape);
}

void PassGraphs::replay_backward(Set& set, Backward& pass, model::Stage& stage,
                                 model::Context& context, PipeBuffer& buffer, const Given& given) {
  copy_all(*memory_, given.output_grads, set.output_grads);
  if (given.loss_grad.defined()) copy_all(*memory_, {given.loss_grad}, {set.loss_grad});
  launch(pass);
  if (pass.kind == Kind::kBackward) set_empty_gradients(stage, pass.empty_after);
  buffer.tape.reset();
  buffer.input_grads = copies_of(context, pass.input_grads);
  buffer.output_grads.clear();
  buffer.inputs.clear();
  buffer.outputs.clear();
  buffer.output_shells.clear();
  buffer.loss = {};
}

// ---- tensors

Tensor PassGraphs::copy_of(model::Context& context, const Tensor& tensor) const {
  Tensor copy = Tensor::empty(context, tensor.shape(), tensor.dtype());
  memory_->copy(copy.raw(), tensor.raw(), tensor.nbytes());
  return copy;
}

std::vector<Tensor> PassGraphs::copies_of(model::Context& context,
                                          const std::vector<Tensor>& tensors) const {
  std::vector<Tensor> copies;
  for (const Tensor& tensor : tensors) copies.push_back(copy_of(context, tensor));
  return copies;
}

std::vector<Tensor> PassGraphs::kept_like(model::Context& context,
                                          const std::vector<Tensor>& tensors) const {
  const tensor::cuda::ForGraphs scope(*memory_);
  std::vector<Tensor> kept;
  for (const Tensor& tensor : tensors) {
    Tensor& fresh = kept.emplace_back();
    if (!tensor.defined()) continue;
    fresh = Tensor::empty(context, tensor.shape(), tensor.dtype());
    keep(fresh);
  }
  return kept;
}

void PassGraphs::keep(const Tensor& tensor) const {
  if (tensor::cuda::is_graph_memory(*memory_, tensor.storage()->data())) {
    tensor.storage()->charge(counters_);
  }
}

void PassGraphs::keep(const Tape& tape) const {
  tape.for_each_tensor([this](const Tensor& tensor, bool) { keep(tensor); });
}

}  // namespace penstock::engine
