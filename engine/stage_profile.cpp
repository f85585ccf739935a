#include "engine/stage_profile.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "engine/pipe_buffers.h"
#include "engine/weight_storages.h"
#include "engine/workspace.h"

namespace penstock::engine {

namespace {

using tensor::Storage;
using tensor::Tensor;

// Numbers storages in the order in which they are seen. It keeps none alive: who is alone in
// looking into a storage may write in place.
class Items {
 public:
  explicit Items(model::Stage& stage) { add_weight_storages(stage, weights_); }

  int number(const Tensor& tensor) {
    const auto [entry, added] =
        numbers_.try_emplace(tensor.storage().get(), static_cast<int>(bytes_.size()));
    if (added) {
      addresses_.emplace_back(tensor.storage());
      bytes_.push_back(static_cast<std::int64_t>(tensor.storage()->bytes()));
    }
    return entry->second;
  }

  StageProfile::Part part(const PipeBuffer& buffer, BufferPart wanted) {
    StageProfile::Part held;
    for_each_tensor(buffer, [&](BufferPart part, Holding holding, const Tensor& tensor) {
      if (part != wanted || weights_.contains(tensor.storage().get())) return;
      const int item = number(tensor);
      const auto found = std::ranges::find(held, item, &StageProfile::Held::item);
      if (found == held.end()) {
        held.push_back({item, holding});
      } else {
        found->holding = std::min(found->holding, holding);
      }
    });
    return held;
  }

  const std::vector<std::int64_t>& bytes() const { return bytes_; }

 private:
  StorageSet weights_;
  std::unordered_map<const Storage*, int> numbers_;
  std::vector<std::weak_ptr<const Storage>> addresses_;  // so that no other storage gets one
  std::vector<std::int64_t> bytes_;
};

// What arrives of tensors that another rank sends. In one process a storage comes whole, and once;
// between processes each tensor comes by itself: the bytes are the larger of both. Sealed, as a
// storage that was sent: nothing writes into it in place.
std::vector<Tensor> arrivals(const std::vector<Tensor>& sent, const model::Context& context) {
  std::unordered_map<const Storage*, std::size_t> bytes, placed;
  for (const Tensor& tensor : sent) bytes[tensor.storage().get()] += tensor.nbytes();
  std::unordered_map<const Storage*, std::shared_ptr<Storage>> storages;
  std::vector<Tensor> result;
  for (const Tensor& tensor : sent) {
    const Storage* source = tensor.storage().get();
    std::shared_ptr<Storage>& storage = storages[source];
    if (storage == nullptr) {
      storage =
          std::make_shared<Storage>(context.allocator, std::max(source->bytes(), bytes.at(source)));
      storage->seal();
    }
    result.emplace_back(storage, placed[source], tensor.shape(), tensor.dtype());
    placed[source] += tensor.nbytes();
  }
  return result;
}

class Profiler {
 public:
  Profiler(model::Stage& stage, model::Context& context, const StageFeed& feed)
      : stage_(stage), context_(context), feed_(feed) {}

  StageProfile run() {
    run_forward_part(/*first=*/true);
    if (context_.training) {
      run_full_backward();
      run_forward_part(/*first=*/false);
      run_split_backward();
    }
    return std::move(profile_);
  }

 private:
  void feed() {
    buffer_ = std::make_unique<PipeBuffer>();
    items_ = std::make_unique<Items>(stage_);
    if (feed_.needs_grad.empty()) {
      for (const Tensor& input : feed_.inputs) {
        buffer_->inputs.push_back(input);
        buffer_->input_needs_grad.push_back(0);
      }
    } else {
      buffer_->put_inputs(arrivals(feed_.inputs, context_), feed_.needs_grad, 0);
      buffer_->whole_inputs = feed_.whole_inputs;
    }
    buffer_->labels = feed_.labels;
  }

  void run_forward_part(bool first) {
    feed();
    std::vector<int> inputs;
    for (const Tensor& input : buffer_->inputs) inputs.push_back(items_->number(input));
    StageProfile::Part held = items_->part(*buffer_, BufferPart::kInputs);
    StageProfile::Part labels = items_->part(*buffer_, BufferPart::kLabels);
    note_workspace(context_, profile_.forward_workspace, [&] {
      run_forward(stage_, context_, *buffer_, feed_.end ? &*feed_.end : nullptr, feed_.pieces);
    });
    StageProfile::Part outputs = items_->part(*buffer_, BufferPart::kOutputs);
    StageProfile::Part tape = items_->part(*buffer_, BufferPart::kTape);
    std::vector<int> sent;
    for (const Tensor& output : buffer_->outputs) sent.push_back(items_->number(output));
    std::vector<Tensor> outputs_sent = buffer_->take_outputs();
    for (const Tensor& output : outputs_sent) output.storage()->seal();
    if (!first) return;
    profile_.input_items = std::move(inputs);
    profile_.inputs = std::move(held);
    profile_.labels = std::move(labels);
    profile_.outputs = std::move(outputs);
    profile_.tape = std::move(tape);
    profile_.output_items = std::move(sent);
    profile_.outputs_sent = std::move(outputs_sent);
    profile_.output_needs_grad = buffer_->output_needs_grad;
    for (const Tensor& output : buffer_->output_shells) {
      profile_.whole_outputs.push_back(output.shape());
    }
    profile_.bytes = items_->bytes();
  }

  // Gives the buffer gradients that nothing else holds.
  void receive_gradients() {
    std::vector<Tensor> gradients;
    profile_.output_grad_items.clear();
    for (std::size_t i = 0; i < buffer_->output_shells.size(); ++i) {
      if (buffer_->output_needs_grad[i] == 0) continue;
      const Tensor& output = buffer_->output_shells[i];
      const tensor::Shape shape =
          feed_.pieces.output_grads ? piece_shape(context_.model, output.shape()) : output.shape();
      gradients.push_back(Tensor::empty(context_, shape, output.dtype()));
      gradients.back().storage()->seal();
      profile_.output_grad_items.push_back(items_->number(gradients.back()));
    }
    buffer_->put_output_grads(std::move(gradients));
    profile_.output_grads = items_->part(*buffer_, BufferPart::kOutputGrads);
  }

  void backward(std::int64_t& workspace, TapePass pass) {
    note_workspace(context_, workspace, [&] {
      run_backward(context_, *buffer_,
                   feed_.end ? loss_gradient(context_, *buffer_, 1.0) : Tensor(), pass,
                   feed_.pieces);
    });
  }

  std::vector<int> input_grad_items() {
    std::vector<int> numbers;
    for (const Tensor& gradient : buffer_->input_grads) numbers.push_back(items_->number(gradient));
    return numbers;
  }

  void run_full_backward() {
    receive_gradients();
    backward(profile_.backward_workspace, &tensor::Tape::backward);
    profile_.input_grad_items = input_grad_items();
    profile_.input_grads = items_->part(*buffer_, BufferPart::kInputGrads);
    profile_.bytes = items_->bytes();
    buffer_.reset();
  }

  void run_split_backward() {
    receive_gradients();
    backward(profile_.split_backward_workspace, &tensor::Tape::backward_input);
    profile_.split_input_grad_items = input_grad_items();
    profile_.split_input_grads = items_->part(*buffer_, BufferPart::kInputGrads);
    profile_.kept_tape = items_->part(*buffer_, BufferPart::kTape);
    buffer_->input_grads.clear();
    note_workspace(context_, profile_.split_backward_workspace,
                   [&] { buffer_->tape.backward_weight(context_); });
    const std::vector<std::int64_t>& bytes = items_->bytes();
    profile_.bytes.resize(std::max(profile_.bytes.size(), bytes.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      profile_.bytes[i] = std::max(profile_.bytes[i], bytes[i]);
    }
    buffer_.reset();
  }

  model::Stage& stage_;
  model::Context& context_;
  const StageFeed& feed_;
  StageProfile profile_;
  std::unique_ptr<PipeBuffer> buffer_;
  std::unique_ptr<Items> items_;
};

}  // namespace

StageProfile profile_stage(model::Stage& stage, model::Context& context, const StageFeed& feed) {
  return Profiler(stage, context, feed).run();
}

}  // namespace penstock::engine
