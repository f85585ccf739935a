// Learns to predict the next byte of a text, on a pipeline of two ranks, with a layer of its own.
#include <iostream>

#include "engine/engine.h"
#include "model/data/repeating_source.h"
#include "model/data/text_source.h"
#include "model/layers/embedding.h"
#include "model/layers/linear.h"
#include "model/losses/cross_entropy_loss.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"

using namespace penstock;

// A layer of your own: write the forward, and the gradients follow.
struct Swish : model::Layer {
  explicit Swish(std::int64_t width)
      : beta(add_parameter("beta", {width}, model::InitRule::ones())) {}
  std::vector<model::Tensor> forward(model::Context& context,
                                     std::span<const model::Tensor> x) override {
    const model::Tensor gate = tensor::mul(context, x[0], context.weight(beta));
    return {tensor::mul(context, x[0], tensor::sigmoid(context, gate))};
  }
  model::Parameter& beta;
};

constexpr auto kConfig = R"({
  "train_batch_size": 32, "train_micro_batch_size_per_gpu": 8, "pipeline": {"stages": 2},
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";

int main(int argc, char** argv) {
  const model::Module module{
      {model::layer<model::Embedding>("Embedding", 256, 32),
       model::layer<model::Linear>("Linear", 32, 64), model::layer<Swish>("Swish", 64),
       model::layer<model::Linear>("Linear", 64, 256)},
      std::make_shared<model::CrossEntropyLoss>()};
  comm::run_local(2, {}, [&](comm::World& world) {  // two ranks: threads of this process
    auto text = std::make_unique<model::TextSource>(model::read_file(argv[argc - 1]), 32);
    engine::Engine engine(world, module, engine::parse_config(kConfig, "kConfig"),
                          std::make_unique<model::RepeatingSource>(std::move(text)));
    for (int step = 1; step <= 100; ++step) {
      const engine::TrainResult result = engine.train_batch();
      if (world.rank() == 0) std::cout << step << ' ' << result.loss << '\n';
    }
    engine.close();
  });
}
