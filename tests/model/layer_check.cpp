#include "tests/model/layer_check.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "model/stage.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using tensor::DType;
using Numbers = std::vector<double>;

// r of L = Σ r·output.
double factor(std::size_t i) {
  return std::sin(1.0 + 0.7 * static_cast<double>(i));
}

class Checker {
 public:
  Checker(const LayerSpec& spec, const std::vector<Tensor>& inputs, const LayerCheck& options)
      : options_(options),
        context_(tensor::make_cpu_allocator()),
        module_{{spec}, {}},
        stage_(module_, 0, 1, stage_options(), context_),
        inputs_(inputs),
        ids_(static_cast<std::size_t>(inputs.at(0).dim(0))) {
    std::iota(ids_.begin(), ids_.end(), 3);
  }

  void run() {
    const std::vector<Numbers> both = backward(/*split=*/false);
    EXPECT_EQ(backward(/*split=*/true), both) << "I then W differs from B";
    std::vector<Tensor> variables;
    for (const StageParameter& entry : stage_.parameters()) {
      variables.push_back(entry.parameter->value);
    }
    for (const Tensor& input : inputs_) variables.push_back(input);
    ASSERT_EQ(variables.size(), both.size());
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (variables[i].dtype() == DType::kF64) compare(i, variables[i], both[i]);
    }
    check_meta();
  }

 private:
  static StageOptions stage_options() {
    StageOptions options;
    options.dtype = DType::kF64;
    return options;
  }

  void prepare(Context& context) const {
    context.training = options_.training;
    context.sample_ids = ids_;
  }

  double loss() {
    prepare(context_);
    double sum = 0;
    std::size_t i = 0;
    for (const Tensor& output : stage_.forward(context_, inputs_, false)) {
      for (const double y : output.span<double>()) sum += factor(i++) * y;
    }
    return sum;
  }

  // Gradients of the weights, then of the inputs; none of an input that has none.
  std::vector<Numbers> backward(bool split) {
    tensor::Tape tape;
    context_.tape = &tape;
    prepare(context_);
    stage_.clear_grads();
    std::vector<Tensor> known;
    for (const Tensor& input : inputs_) known.push_back(tape.input(input, true));
    std::size_t i = 0;
    for (const Tensor& output : stage_.forward(context_, known, true)) {
      Numbers gradient;
      for (std::int64_t k = 0; k < output.numel(); ++k) gradient.push_back(factor(i++));
      EXPECT_TRUE(tape.seed(output, testing::make(context_, output.shape(), gradient)));
    }
    if (split) {
      tape.backward_input(context_);
      tape.backward_weight(context_);
    } else {
      tape.backward(context_);
    }
    context_.tape = nullptr;
    std::vector<Numbers> gradients;
    for (const tensor::GradSlot& slot : stage_.slots()) {
      EXPECT_FALSE(slot.empty);
      gradients.push_back(testing::values<double>(slot.grad));
    }
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      const Tensor gradient = tape.take_input_grad(k);
      gradients.push_back(gradient.defined() ? testing::values<double>(gradient) : Numbers());
    }
    return gradients;
  }

  void compare(std::size_t variable, const Tensor& x, const Numbers& gradient) {
    ASSERT_EQ(static_cast<std::size_t>(x.numel()), gradient.size()) << "variable " << variable;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double& element = x.data<double>()[i];
      const double kept = element;
      element = kept + options_.step;
      const double above = loss();
      element = kept - options_.step;
      const double below = loss();
      element = kept;
      const double difference = (above - below) / (2 * options_.step);
      EXPECT_NEAR(gradient[i], difference, options_.tolerance * std::max(1.0, std::abs(difference)))
          << "variable " << variable << ", element " << i;
    }
  }

  void check_meta() {
    prepare(context_);
    const std::vector<Tensor> real = stage_.forward(context_, inputs_, false);
    Context meta(tensor::make_meta_allocator());
    prepare(meta);
    Stage stage(module_, 0, 1, stage_options(), meta);
    std::vector<Tensor> inputs;
    for (const Tensor& input : inputs_) {
      inputs.push_back(Tensor::empty(meta, input.shape(), input.dtype()));
    }
    const std::vector<Tensor> planned = stage.forward(meta, inputs, false);
    ASSERT_EQ(planned.size(), real.size());
    for (std::size_t i = 0; i < real.size(); ++i) {
      EXPECT_EQ(planned[i].shape(), real[i].shape());
      EXPECT_EQ(planned[i].dtype(), real[i].dtype());
    }
  }

  LayerCheck options_;
  Context context_;
  Module module_;
  Stage stage_;
  std::vector<Tensor> inputs_;
  std::vector<std::int64_t> ids_;
};

}  // namespace

void check_layer(const LayerSpec& spec, const std::vector<Tensor>& inputs,
                 const LayerCheck& options) {
  Checker(spec, inputs, options).run();
}

}  // namespace penstock::model
