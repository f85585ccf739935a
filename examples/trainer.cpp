// A trainer in all its parts, as docs/write-a-trainer.md goes through them: ranks as threads or
// under mpirun, a module, data, the loop, a log. It learns which number follows which, on the grid
// of its run.json; keys given as optimizer.params.lr=3e-4 override that.
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/layers/embedding.h"
#include "model/layers/linear.h"
#include "model/losses/cross_entropy_loss.h"
#include "model/module.h"

using namespace penstock;

void train(comm::World& world, const engine::Config& config);

int main(int argc, char** argv) try {
  const std::vector<std::string> overrides(argv + 1, argv + argc);  // optimizer.params.lr=3e-4 ...
  const engine::Config config = engine::load_config_file("run.json", overrides);
  const comm::WorldOptions options{.timeout_seconds = config.communication.timeout_seconds};
  if (!comm::launched_by_mpi()) {
    comm::run_local(4, options, [&](comm::World& world) { train(world, config); });
    return 0;
  }
  const auto world = comm::make_mpi_world(options);
  try {
    train(*world, config);
    world->close();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    world->kill_job(1);  // the others may wait where only the launcher reaches them
  }
} catch (const std::exception& error) {  // such as a key of run.json that there is not
  std::cerr << error.what() << '\n';
  return 1;
}

model::Module make_module() {
  return {{model::layer<model::Embedding>("Embedding", 256, 64),
           model::layer<model::Linear>("Linear", 64, 256)},
          std::make_shared<model::CrossEntropyLoss>()};
}

std::unique_ptr<model::DataSource> make_source() {
  const tensor::Context context(tensor::make_cpu_allocator());
  std::vector<std::int32_t> x, y;  // 1000 rows of 8 numbers, and of those that follow
  for (int i = 0; i < 8000; ++i) {
    x.push_back(i % 256);
    y.push_back((i + 1) % 256);
  }
  auto rows = std::make_unique<model::InMemorySource>(
      std::vector{tensor::Tensor::from<std::int32_t>(context, {1000, 8}, x)},
      std::vector{tensor::Tensor::from<std::int32_t>(context, {1000, 8}, y)}, /*shuffle_seed=*/7);
  return std::make_unique<model::RepeatingSource>(std::move(rows));
}

class StandardError final : public tensor::Log {
 public:
  void write(const tensor::LogEvent& event) noexcept override {
    const std::lock_guard lock(mutex_);
    std::cerr << "rank " << event.rank << ": " << event.message << '\n';
  }

 private:
  std::mutex mutex_;
};

void train(comm::World& world, const engine::Config& config) {
  static StandardError log;  // of all ranks
  engine::Engine engine(world, make_module(), config, make_source(), {.log = &log});
  const std::filesystem::path folder = "run/checkpoints";
  if (std::filesystem::exists(folder / "latest")) engine.load_checkpoint(folder);
  while (engine.global_steps() < 200) {
    const engine::TrainResult result = engine.train_batch();
    if (world.rank() == 0) std::cout << result.step << ' ' << result.loss << '\n';
    if (result.step % 100 == 0) engine.save_checkpoint(folder);
  }
  const auto held_out = make_source();
  const engine::EvalResult eval = engine.eval_batch(*held_out, {.micro_batches = 8});
  if (world.rank() == 0) std::cout << "evaluation: " << eval.loss.value() << '\n';
  engine.close();
}
