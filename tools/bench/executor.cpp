// penstock-bench executor and mlp: what a step costs when there is little or nothing to compute.
#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "comm/world.h"
#include "engine/engine.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/layers/activation.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "schedule/registry.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kRows = 4;

model::Module tiny_mlp() {
  model::Module module;
  for (int i = 0; i < 8; ++i) {
    module.layers.push_back(model::layer<model::Linear>("Linear", kWidth, kWidth));
    module.layers.push_back(model::layer<model::Tanh>("Tanh"));
  }
  module.loss = std::make_shared<model::MseLoss>();
  return module;
}

std::unique_ptr<model::DataSource> ones(std::int64_t samples) {
  const tensor::Context context(tensor::make_cpu_allocator());
  const std::vector<float> values(static_cast<std::size_t>(samples * kWidth), 1.0f);
  const tensor::Tensor data = tensor::Tensor::from<float>(context, {samples, kWidth}, values);
  return std::make_unique<model::RepeatingSource>(
      std::make_unique<model::InMemorySource>(std::vector{data}, std::vector{data}));
}

engine::Config config_of(int stages, int micro_batches) {
  return engine::parse_config(
      R"({"train_micro_batch_size_per_gpu": 4, "threads_per_rank": 1, "gradient_clipping": 0,
          "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
          "gradient_accumulation_steps": )" +
          std::to_string(micro_batches) + R"(, "pipeline": {"partition": "uniform", "stages": )" +
          std::to_string(stages) + "}}",
      "penstock-bench");
}

// Times the stream alone, without the step protocol around it.
class StreamTimer final : public engine::Observer {
 public:
  void begin_stream(std::int64_t) override { begin_ = Clock::now(); }
  void end_stream() override {
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - begin_).count());
  }
  void before(std::int64_t, const schedule::Instruction&) override { ++instructions_; }
  void after(std::int64_t, const schedule::Instruction&) override {}

  double seconds() const { return median(seconds_); }
  double instructions() const {
    return static_cast<double>(instructions_) / static_cast<double>(seconds_.size());
  }

 private:
  Clock::time_point begin_;
  std::vector<double> seconds_;
  std::int64_t instructions_ = 0;
};

}  // namespace

void bench_executor() {
  constexpr int kMicroBatches = 4096;
  comm::run_local(1, {}, [](comm::World& world) {
    engine::Engine engine(world, tiny_mlp(), config_of(1, kMicroBatches),
                          ones(kRows * kMicroBatches));
    // Every handler is replaced by one that does nothing, which costs more than the built-in call.
    for (const schedule::Opcode opcode : schedule::kAllOpcodes) {
      engine.replace_handler(opcode, [](const schedule::Instruction&, const auto&) {});
    }
    StreamTimer timer;
    engine.add_observer(timer);
    for (int step = 0; step < 50; ++step) engine.train_batch();
    Table table({"executor", "value"});
    table.add({"instructions per step", formatted("%.0f", timer.instructions())});
    table.add({"ns per instruction (target 150)",
               formatted("%.1f", timer.seconds() / timer.instructions() * 1e9)});
    table.print();
    engine.close();
  });
}

void bench_mlp() {
  constexpr int kMicroBatches = 32;
  for (const int ranks : {1, 2}) {
    comm::run_local(ranks, {}, [ranks](comm::World& world) {
      engine::Engine engine(world, tiny_mlp(), config_of(ranks, kMicroBatches),
                            ones(kRows * kMicroBatches));
      for (int step = 0; step < 10; ++step) engine.train_batch();
      const double seconds = median_seconds(50, [&] { engine.train_batch(); });
      if (world.rank() == 0) {
        Table table({"8 x (Linear 16-16 + Tanh), M = 32", "ms per step"});
        table.add({std::to_string(ranks) + (ranks == 2 ? " ranks (target 0.6)" : " rank"),
                   formatted("%.3f", seconds * 1e3)});
        table.print();
      }
      engine.close();
    });
  }
}

}  // namespace penstock::tools
