#include "tests/engine/pass_run.h"

#include <cmath>
#include <deque>
#include <memory>
#include <utility>

#include "model/stage.h"
#include "model/zoo/gpt2.h"
#include "tensor/cuda/cuda.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/elementwise.h"

namespace penstock::engine {

using model::Module;
using tensor::DType;
using tensor::Tensor;

namespace {

model::StageOptions options_of(const Scenario& scenario) {
  model::StageOptions options;
  options.dtype = scenario.dtype;
  options.grad_dtype = DType::kF32;
  options.recompute_interval = scenario.recompute;
  return options;
}

class Run {
 public:
  Run(const Scenario& scenario, bool graphs)
      : scenario_(scenario),
        context_(tensor::cuda::make_cuda_allocator({})),
        stage_(scenario.module, scenario.begin, scenario.end, options_of(scenario), context_) {
    for (int b = 0; b < scenario.buffers; ++b) buffers_.push_back(std::make_unique<PipeBuffer>());
    context_.random.seed = 7;
    if (!graphs) return;
    graphs_ = std::make_unique<PassGraphs>(
        context_.allocator,
        std::vector{obstacle_to_graphs(scenario.module, scenario.begin, scenario.end)},
        [this](std::string text) { outcome_.told.push_back(std::move(text)); });
  }

  Outcome all_steps() {
    for (step_ = 0; step_ < scenario_.steps; ++step_) {
      context_.random.step = static_cast<std::uint64_t>(step_);
      if (scenario_.evaluates) evaluate();
      train();
      update();
    }
    if (graphs_ != nullptr) {
      outcome_.use = graphs_->use();
      outcome_.graph_bytes = graphs_->bytes();
    }
    for (const auto& buffer : buffers_) buffer->release();
    outcome_.rank_bytes = context_.allocator->counters()->live_bytes();
    return std::move(outcome_);
  }

 private:
  bool last() const { return scenario_.end == std::ssize(scenario_.module.layers); }
  // Evenly spread, and others for each step, micro batch and purpose.
  double number(int micro_batch, int purpose, std::size_t i) const {
    const double x = static_cast<double>(i + 1) * 0.754877666 + step_ * 0.3819660113 +
                     micro_batch * 0.5698402910 + purpose * 0.2451223338;
    return x - std::floor(x);
  }
  Tensor hidden(int m, int purpose) {
    const tensor::Shape shape = {scenario_.rows(step_, m), kTokens, kWidth};
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(number(m, purpose, i) - 0.5);
    }
    const Tensor result = Tensor::from<float>(context_, shape, values);
    return scenario_.dtype == DType::kF32 ? result : cast(context_, result, scenario_.dtype);
  }
  Tensor ids(int m, int purpose) {
    const tensor::Shape shape = {scenario_.rows(step_, m), kTokens};
    std::vector<std::int32_t> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int32_t>(number(m, purpose, i) * kVocabulary);
    }
    return Tensor::from<std::int32_t>(context_, shape, values);
  }

  PipeBuffer& buffer_of(int m) {
    return *buffers_[static_cast<std::size_t>(m % scenario_.buffers)];
  }
  PassGraphs::Place place_of(int m) const {
    return {schedule::ChunkId(0), schedule::BufferId(m % scenario_.buffers)};
  }

  void forward(int m, bool training) {
    PipeBuffer& buffer = buffer_of(m);
    buffer.release();
    buffer.micro_batch = m;
    const bool first = scenario_.begin == 0 && scenario_.module.loss != nullptr &&
                       scenario_.module.layers[0].type == "Embedding";
    buffer.inputs = {first ? ids(m, 1) : hidden(m, 1)};
    buffer.input_needs_grad = {static_cast<std::uint8_t>(first ? 0 : 1)};
    const bool tokens = scenario_.module.layers[0].type == "Embedding";
    if (last()) buffer.labels = {tokens ? ids(m, 2) : hidden(m, 2)};
    sample_ids_.assign(static_cast<std::size_t>(scenario_.rows(step_, m)), 100 * step_ + m);
    context_.sample_ids = sample_ids_;
    named_.resize(static_cast<std::size_t>(scenario_.micro_batches));
    model::NamedTensors& named = named_[static_cast<std::size_t>(m)];
    named = {{"factor", hidden(m, 4)}};
    context_.named_inputs = scenario_.names ? &named : nullptr;
    context_.training = training;
    context_.micro_batch = m;
    const ModelEnd end{.loss = scenario_.module.loss.get()};
    const ModelEnd* at_end = last() ? &end : nullptr;
    const model::LossResult result =
        graphs_ != nullptr ? graphs_->forward(place_of(m), stage_, context_, buffer, at_end)
                           : run_forward(stage_, context_, buffer, at_end);
    if (result.loss.defined()) note(result.loss);
    // They go to another rank, which may be slow to read them.
    for (const Tensor& output : buffer.take_outputs()) sent_.push_back(output);
  }

  void backward(int m) {
    PipeBuffer& buffer = buffer_of(m);
    Tensor loss_grad;
    if (last()) {
      loss_grad = loss_gradient(context_, buffer, scenario_.scale(step_, m));
    } else {
      buffer.put_output_grads({hidden(m, 3)});
    }
    const TapePass pass = scenario_.split ? &tensor::Tape::backward_input : &tensor::Tape::backward;
    if (graphs_ != nullptr) {
      graphs_->backward(place_of(m), stage_, context_, buffer, loss_grad, pass);
    } else {
      run_backward(context_, buffer, loss_grad, pass);
    }
    for (const Tensor& gradient : std::exchange(buffer.input_grads, {})) sent_.push_back(gradient);
    if (!scenario_.split) buffer.tape.reset();
  }

  void backward_weight(int m) {
    PipeBuffer& buffer = buffer_of(m);
    if (graphs_ != nullptr) {
      graphs_->backward_weight(place_of(m), stage_, context_, buffer);
    } else {
      buffer.tape.backward_weight(context_);
    }
    buffer.tape.reset();
  }

  void train() {
    std::deque<int> under_way;
    const auto finish = [&] {
      backward(under_way.front());
      if (scenario_.split) backward_weight(under_way.front());
      under_way.pop_front();
    };
    for (int m = 0; m < scenario_.micro_batches; ++m) {
      if (std::ssize(under_way) == scenario_.buffers) finish();
      forward(m, true);
      under_way.push_back(m);
    }
    while (!under_way.empty()) finish();
    for (const Tensor& tensor : std::exchange(sent_, {})) note(tensor);
  }

  void evaluate() {
    forward(0, false);
    for (const Tensor& tensor : std::exchange(sent_, {})) note(tensor);
  }

  // Adds the gradients to the weights.
  void update() {
    for (const model::StageParameter& parameter : stage_.parameters()) {
      for (const std::size_t use : parameter.uses) {
        const tensor::GradSlot& slot = stage_.slots()[use];
        if (slot.empty) continue;
        note(slot.grad);
        Tensor& value = parameter.parameter->value;
        add_into(context_, value, cast(context_, slot.grad, value.dtype()), false);
      }
    }
    stage_.clear_grads();
    if (!scenario_.frees_gradients) return;
    // What takes their place keeps the next ones from coming to lie there again.
    stage_.release_grads(false);
    in_their_place_.push_back(Tensor::zeros(context_, {1 + step_ * 512}, DType::kF32));
    stage_.provide_grads(context_, false);
  }

  void note(const Tensor& tensor) {
    Bits bits(tensor.nbytes());
    tensor.storage()->allocator().download(bits, tensor.raw());
    outcome_.results.push_back(std::move(bits));
  }

  Scenario scenario_;
  model::Context context_;
  model::Stage stage_;
  std::vector<std::unique_ptr<PipeBuffer>> buffers_;
  std::unique_ptr<PassGraphs> graphs_;
  std::vector<std::int64_t> sample_ids_;
  std::vector<model::NamedTensors> named_;  // by micro batch
  std::vector<Tensor> sent_, in_their_place_;
  Outcome outcome_;
  int step_ = 0;
};

}  // namespace

Module gpt2(double dropout) {
  return model::make_gpt2({.layers = 2,
                           .heads = 2,
                           .width = kWidth,
                           .context = kTokens,
                           .vocabulary = kVocabulary,
                           .dropout = dropout});
}

Outcome run_passes(const Scenario& scenario, bool graphs) {
  return Run(scenario, graphs).all_steps();
}

}  // namespace penstock::engine
