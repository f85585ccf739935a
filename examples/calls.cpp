// The shorter pieces of the documents, each in a function of its own. They are compiled, so that
// they are right, and not run.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "model/zoo/gpt2_names.h"
#include "schedule/lowering.h"
#include "schedule/verify.h"

using namespace penstock;
using namespace penstock::schedule;

// --- docs/write-a-trainer.md

int updates_of_a_step(engine::Engine& engine) {
  int updates = 0;
  engine.replace_handler(schedule::Opcode::kOptimizerStep,
                         [&](const schedule::Instruction&, const std::function<void()>& run) {
                           run();  // the engine's own
                           ++updates;
                         });
  engine.train_batch();
  return updates;
}

// --- docs/checkpoints.md

void save_and_go_on(engine::Engine& engine, std::int64_t steps) {
  engine.save_checkpoint("run/checkpoints");  // under the tag global_stepN
  const engine::LoadResult loaded = engine.load_checkpoint("run/checkpoints");
  while (engine.global_steps() < steps) engine.train_batch();  // goes on as if nothing had happened
}

void begin(engine::Engine& engine, const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "latest")) engine.load_checkpoint(folder);
}

void load_with_a_layer_more(engine::Engine& engine, const std::filesystem::path& folder) {
  const auto stored_name = [](std::string_view name) -> std::string {
    const int layer = std::stoi(std::string(name));
    if (layer == 4) return "";
    return std::to_string(layer < 4 ? layer : layer - 1) + std::string(name.substr(name.find('.')));
  };
  engine.load_checkpoint(folder, std::nullopt, {.names = stored_name});
}

void load_hugging_face(engine::Engine& engine, const model::Gpt2Config& config) {
  std::map<std::string, std::string> stored;
  for (const model::WeightName& name : model::gpt2_names(config)) {
    stored[name.logical] = name.hugging_face;
  }
  const auto stored_name = [&](std::string_view name) { return stored.at(std::string(name)); };
  engine.load_module("gpt2", {.names = stored_name});
}

// --- docs/from-pytorch.md

engine::TrainResult step(engine::Engine& engine, const tensor::Tensor& x, const tensor::Tensor& y) {
  // schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss)
  // rank 0: schedule.step(x)   last rank: schedule.step(target=y, losses=losses)   optimizer.step()
  engine::WholeBatch batch;
  if (engine.is_first_stage()) batch.inputs = {x};
  if (engine.is_last_stage()) batch.targets = {y};
  std::vector<double> losses;
  const engine::TrainResult result = engine.step(batch, {.losses = &losses});
  return result;
}

// --- docs/write-a-layer.md

void step_with_a_mask(engine::Engine& engine, engine::WholeBatch& batch,
                      const tensor::Tensor& mask) {
  batch.named = {{"mask", mask}};                        // cut along its first axis
  batch.named = {{"mask", {mask, engine::kReplicate}}};  // all of it with each micro batch
  engine.step(batch);
}

// --- docs/schedules.md

// All forwards, then all backwards, the last micro batch first; one stage per rank.
RowSource mine(int ranks, int micro_batches) {
  auto row = [=](PipeRank rank) {
    const StageId stage{rank.value};
    Row cells;
    for (int m = 0; m < micro_batches; ++m) {
      cells.push_back(Action{ActionKind::kForward, stage, MicroBatchId{m}});
    }
    for (int m = micro_batches - 1; m >= 0; --m) {
      cells.push_back(Action{ActionKind::kBackward, stage, MicroBatchId{m}});
    }
    return cells;
  };
  return {StageMap::loop(ranks, 1), micro_batches, true, row};
}

void prove() {
  auto pipe = lower_all("mine", mine(4, 8));  // the streams of all ranks
  require_verified(pipe, true);               // throws with the reason, and the grid around it
}

void train_by_it(comm::World& world, const model::Module& module, const engine::Config& config,
                 std::unique_ptr<model::DataSource> data) {
  engine::EngineOptions options;
  options.schedule = [](const ScheduleArgs& args) {
    return lower("mine", mine(args.ranks, args.micro_batches), args.rank);
  };
  engine::Engine engine(world, module, config, std::move(data), options);
}
