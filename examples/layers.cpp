// The layers of docs/write-a-layer.md and docs/tensor-parallel.md, in modules that train: layers
// with parameters and children, without weights, with inputs by name, with an operation of their
// own, and shared out over ranks.
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/layer.h"
#include "model/layers/lambda.h"
#include "model/layers/linear.h"
#include "model/layers/parallel_linear.h"
#include "model/losses/mse_loss.h"
#include "model/module.h"
#include "model/parallel/collectives.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/custom.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/shape.h"

using namespace penstock;
using tensor::Tensor;

class GatedUnit final : public model::Layer {
 public:
  explicit GatedUnit(std::int64_t width)
      : scale_(add_parameter("scale", {width}, model::InitRule::ones())),
        gate_(add_child("gate", std::make_unique<model::Linear>(width, width))) {}

  std::vector<Tensor> forward(model::Context& context, std::span<const Tensor> inputs) override {
    model::expect_inputs("GatedUnit", inputs, 1);
    const Tensor& x = inputs[0];  // [rows, ..., width]
    const Tensor gate = tensor::sigmoid(context, gate_.apply(context, x));
    return {tensor::mul(context, tensor::mul(context, x, gate), context.weight(scale_))};
  }

 private:
  model::Parameter& scale_;
  model::Linear& gate_;
};

// y = x · w, where w has the trailing dimensions of x.
tensor::CustomOp product() {
  tensor::CustomOp op;
  op.name = "product";
  op.forward = [](tensor::Context& c, std::span<const Tensor> in, tensor::Saver& saver) {
    saver.save(in[0], tensor::SavedFor::kWeightGrad);  // saved(0): until weight_grad has run
    saver.save(in[1], tensor::SavedFor::kInputGrad);   // saved(1): until input_grad has run
    return std::vector{tensor::mul(c, in[0], in[1])};
  };
  op.input_grad = [](tensor::Context& c, tensor::Backward& b) {
    if (b.wants(0)) b.set(0, tensor::mul(c, b.grad(), b.saved(1)));
  };
  op.weight_grad = [](tensor::Context& c, tensor::Backward& b) {
    if (b.wants(1)) b.set(1, tensor::sum_to(c, tensor::mul(c, b.grad(), b.saved(0)), b.shape(1)));
  };
  return op;
}

class Product final : public model::Layer {
 public:
  explicit Product(std::int64_t width)
      : weight_(add_parameter("weight", {width}, model::InitRule::ones())) {}

  std::vector<Tensor> forward(model::Context& context, std::span<const Tensor> x) override {
    return tensor::apply(context, product_, std::vector{x[0], context.weight(weight_)});
  }

 private:
  model::Parameter& weight_;
  tensor::CustomOp product_ = product();
};

class Scale final : public model::Layer {
 public:
  static constexpr bool kReplayable = true;

  explicit Scale(std::int64_t width)
      : scale_(add_parameter("scale", {width}, model::InitRule::ones(),
                             model::Split::whole(model::Split::Gradient::kPartOfTheSequence))) {}

  std::vector<Tensor> forward(model::Context& context, std::span<const Tensor> x) override {
    return {tensor::mul(context, x[0], context.weight(scale_))};
  }

 private:
  model::Parameter& scale_;
};

class SwitchedMlp final : public model::Layer {
 public:
  explicit SwitchedMlp(std::int64_t width)
      : up_(add_child("up", std::make_unique<model::ColumnLinear>(width, 4 * width))),
        down_(add_child("down", std::make_unique<model::RowLinear>(4 * width, width))) {}

  std::vector<Tensor> forward(model::Context& context, std::span<const Tensor> inputs) override {
    const Tensor x = model::enter_group(context, inputs[0]);             // whole, on every rank
    const Tensor hidden = tensor::silu(context, up_.apply(context, x));  // this rank's features
    return {down_.apply(context, hidden)};                               // summed over the ranks
  }

 private:
  model::ColumnLinear& up_;
  model::RowLinear& down_;
};

model::LayerSpec halve() {
  return model::lambda("Halve", [](model::Context& context, std::span<const Tensor> x) {
    return std::vector{tensor::scale(context, x[0], 0.5)};
  });
}

model::LayerSpec masked() {
  return model::reading_named(
      {"mask"}, model::lambda("Masked", [](model::Context& context, std::span<const Tensor> x) {
        return std::vector{tensor::mul(context, x[0], context.named_input("mask"))};
      }));
}

model::LayerSpec recomputed() {
  model::LayerSpec spec = model::layer<GatedUnit>("GatedUnit", 64);
  spec.recompute = model::Recompute::kAlways;  // or kNever
  return spec;
}

constexpr auto kConfig = R"({
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
  "pipeline": {"stages": 2}, "tensor_parallel": {"size": 2},
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";

// Each step, the loss of learning to double numbers, with every second one masked.
int main() {
  const model::Module module{
      {model::layer<GatedUnit>("GatedUnit", 64), halve(), recomputed(),
       model::layer<Product>("Product", 64), model::layer<SwitchedMlp>("SwitchedMlp", 64),
       model::with_sequence(model::SequenceRole::kInside, model::layer<Scale>("Scale", 64)),
       masked()},
      std::make_shared<model::MseLoss>()};
  comm::run_local(4, {}, [&](comm::World& world) {
    const tensor::Context context(tensor::make_cpu_allocator());
    std::vector<float> x, y, mask;
    for (int i = 0; i < 8 * 64; ++i) {
      const float number = static_cast<float>(i % 37) / 37.0F;
      x.push_back(number);
      mask.push_back(i % 2 == 0 ? 1.0F : 0.0F);
      y.push_back(2.0F * number * mask.back());
    }
    engine::WholeBatch batch;
    batch.inputs = {Tensor::from<float>(context, {8, 64}, x)};
    batch.targets = {Tensor::from<float>(context, {8, 64}, y)};
    batch.named.emplace("mask", Tensor::from<float>(context, {8, 64}, mask));
    engine::Engine engine(world, module, engine::parse_config(kConfig, "kConfig"));
    for (int step = 1; step <= 100; ++step) {
      const engine::TrainResult result = engine.step(batch);
      if (world.rank() == 0) std::cout << step << ' ' << result.loss << '\n';
    }
    engine.close();
  });
}
