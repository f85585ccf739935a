// penstock-bench checkpoint: how long an asynchronous save keeps the trainer waiting, beside one
// copy of the state.
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

namespace fs = std::filesystem;
using tensor::Tensor;

constexpr int kRanks = 2;
constexpr int kLayersPerRank = 4;
constexpr int kTensorsPerWeight = 3;  // with Adam's two moments

model::Module square_layers(std::int64_t width) {
  model::Module module;
  for (int i = 0; i < kRanks * kLayersPerRank; ++i) {
    module.layers.push_back(
        model::layer<model::Linear>("Linear", width, width, model::LinearOptions{.bias = false}));
  }
  module.loss = std::make_shared<model::MseLoss>();
  return module;
}

std::unique_ptr<model::DataSource> samples(std::int64_t width) {
  const tensor::Context context(tensor::make_cpu_allocator());
  const std::vector<float> ones(static_cast<std::size_t>(2 * width), 1.0f);
  const Tensor data = Tensor::from<float>(context, {2, width}, ones);
  return std::make_unique<model::RepeatingSource>(
      std::make_unique<model::InMemorySource>(std::vector{data}, std::vector{data}));
}

engine::Config configuration() {
  return engine::parse_config(R"({"train_micro_batch_size_per_gpu": 1,
                                  "gradient_accumulation_steps": 2, "threads_per_rank": 1,
                                  "optimizer": {"type": "Adam", "params": {"lr": 0.001}},
                                  "pipeline": {"stages": 2, "partition": "uniform"}})",
                              "the benchmark's configuration");
}

// As many bytes as a rank saves, in as many tensors.
struct Copy {
  explicit Copy(std::int64_t width) {
    for (int i = 0; i < kLayersPerRank * kTensorsPerWeight; ++i) {
      for (std::vector<Tensor>* side : {&from, &to}) {
        side->push_back(
            Tensor::empty(tensor::make_cpu_allocator(), {width, width}, tensor::DType::kF32));
        std::memset(side->back().raw(), 1, side->back().nbytes());
      }
    }
  }
  void run() {
    for (std::size_t i = 0; i < from.size(); ++i) {
      std::memcpy(to[i].raw(), from[i].raw(), from[i].nbytes());
    }
  }
  std::vector<Tensor> from, to;
};

// From when all ranks begin until this rank is done; the longest of all ranks.
template <class Fn>
double slowest(comm::World& world, Fn fn) {
  using Clock = std::chrono::steady_clock;
  world.all().barrier().wait();
  const Clock::time_point begin = Clock::now();
  fn();
  double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  world.all().all_reduce_wait(std::span(&seconds, 1), comm::ReduceOp::kMax);
  return seconds;
}

}  // namespace

void bench_async_save(const fs::path& parent, std::int64_t mebibytes) {
  constexpr int kTurns = 6;
  const fs::path folder = parent / "penstock-bench-async-save";
  const double bytes = static_cast<double>(mebibytes) * 1024 * 1024;
  const auto width = static_cast<std::int64_t>(
      std::sqrt(bytes / (kLayersPerRank * kTensorsPerWeight * sizeof(float))));
  Table table({std::to_string(kRanks) + " ranks, " + std::to_string(mebibytes) + " MiB each",
               "blocked ms", "one copy ms", "ratio", "until on disk ms"});
  std::vector<double> ratios;
  comm::run_local(kRanks, {}, [&](comm::World& world) {
    engine::Engine engine(world, square_layers(width), configuration(), samples(width));
    engine.train_batch();  // so that the moments are there
    Copy copy(width);
    copy.run();
    for (int turn = 0; turn <= kTurns; ++turn) {
      double blocked = 0.0, plain = 0.0, rest = 0.0;
      for (const bool saves : {turn % 2 == 0, turn % 2 != 0}) {  // in changing order
        if (!saves) {
          plain = slowest(world, [&] { copy.run(); });
          continue;
        }
        blocked = slowest(world, [&] { engine.save_checkpoint(folder, "", {.async = true}); });
        rest = slowest(world, [&] { engine.finish_save(); });
      }
      if (world.rank() != 0) continue;
      if (turn > 0) ratios.push_back(blocked / plain);
      table.add({turn == 0 ? "first, with new memory" : "turn " + std::to_string(turn),
                 formatted("%.1f", 1e3 * blocked), formatted("%.1f", 1e3 * plain),
                 formatted("%.2f", blocked / plain), formatted("%.0f", 1e3 * (blocked + rest))});
    }
    engine.close();
    if (world.rank() == 0) fs::remove_all(folder);
  });
  table.add({"median without the first", "", "", formatted("%.2f", median(ratios)), ""});
  table.print();
}

}  // namespace penstock::tools
