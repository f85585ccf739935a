// Construction: everything is checked on every rank first, then built.
#include <algorithm>
#include <limits>
#include <utility>

#include "engine/auto_schedule.h"
#include "engine/cuts.h"
#include "engine/engine_state.h"
#include "engine/hash.h"
#include "engine/loader.h"
#include "engine/report.h"
#include "engine/stage_options.h"
#include "engine/streams.h"
#include "model/partition.h"

namespace penstock::engine {

namespace {

int default_threads(const comm::World& world) {
  return std::max(1, world.host_cores() / std::max(1, world.host_size()));
}

comm::Grid grid_of(const Config& config, int ranks) {
  const int model = config.tensor_parallel.size;
  return {config.pipeline.stages, ranks / config.pipeline.stages / model, model};
}

}  // namespace

Engine::State::State(comm::World& rank_world, model::Module module, Config run_config,
                     std::unique_ptr<model::DataSource> given, const EngineOptions& engine_options)
    : world(rank_world),
      config(std::move(run_config)),
      options(engine_options),
      data(std::move(given)) {
  // What is wrong here is wrong on every rank, or the vote says that the ranks differ.
  model::Bounds bounds;
  vote_after(CallKind::kConstruct, [&] { bounds = plan(module); });
  const comm::DevicePlan device = plan_device(config.device, world);
  std::shared_ptr<tensor::Allocator> memory;
  vote_after(CallKind::kConstruct, [&] { memory = make_memory(config.device, device); });
  const schedule::StageMap& map = train_schedule->stage_map();
  rank = std::make_unique<RankState>(world, grid_of(config, world.size()), std::move(module), map,
                                     std::move(bounds), memory, device.transport,
                                     pipe_links(map, is_auto(config.pipeline)));
  rank->context.threads = config.threads_per_rank.value_or(default_threads(world));
  rank->host.threads = rank->context.threads;
  device_wait = std::make_unique<DeviceWait>(world, memory);
  rank->context.progress = &world;
  rank->context.random.seed = config.seed;
  rank->weights = config.precision.weights;
  rank->context.model = model_axis();
  if (rank->context.model.size > 1) rank->context.model_group = &rank->comms.model();
  // A rank that runs out of memory here must not leave the others waiting.
  vote_after(CallKind::kConstruct, [&] {
    build_stages();
    if (config.device.graphs) build_graphs();
    own_source(std::move(data));
    start_reports();
  });
  rank->gradients = std::make_unique<GradientReducer>(config, rank->module, rank->bounds, rank->map,
                                                      rank->stages, rank->grid, rank->comms);
  report = startup_report_text(*rank, batch, train_schedule->name());
  if (world.rank() != 0) return;
  log(tensor::LogLevel::kInfo, report);
  if (config.dump_state) log(tensor::LogLevel::kInfo, state_dump(*rank, config));
  for (const std::string& key : config.without_effect) {
    log(tensor::LogLevel::kWarning, "configuration key without effect: " + key);
  }
}

model::Bounds Engine::State::plan(const model::Module& module) {
  const DataParallelSize replicas =
      data_parallel_size(world.size(), config.pipeline.stages, config.tensor_parallel.size);
  batch = resolve_batch(config.batch, replicas);
  configured_batch_size = batch.train_batch_size;
  if (batch.gradient_accumulation_steps > std::numeric_limits<std::int32_t>::max()) {
    throw ConfigError("gradient_accumulation_steps is " +
                      std::to_string(batch.gradient_accumulation_steps) +
                      "; expected fewer than 2^31 micro batches per step");
  }
  if (config.optimizer && !config.optimizer->groups.empty()) {
    group_patterns(*config.optimizer).check_used(model::parameter_names(module));
  }
  if (config.tensor_parallel.sequence_parallel) model::check_sequence_roles(module);
  const comm::Grid grid = grid_of(config, world.size());
  const auto micro_batches = static_cast<int>(batch.gradient_accumulation_steps);
  if (is_auto(config.pipeline) && !config.pipeline.cost_file.empty()) {
    found = search_with_file(config.pipeline, micro_batches);
  }
  TrainStream stream = make_train_stream(config.pipeline, options.schedule, found, micro_batches,
                                         schedule::PipeRank(grid.position(world.rank()).pipe));
  train_schedule = std::move(stream.schedule);
  require_tied_reduction(*train_schedule, module);
  identity = identity_with(stream.identity, module);
  if (data != nullptr) {
    require_samples(*data);
    source_position = data->position();
  }
  return cut_module(module, config, train_schedule->stage_map());
}

model::ModelAxis Engine::State::model_axis() const {
  return {.size = config.tensor_parallel.size,
          .rank = rank->comms.model().rank(),
          .sequence_parallel = config.tensor_parallel.sequence_parallel};
}

void Engine::State::require_tied_reduction(const schedule::Schedule& stream,
                                           const model::Module& module) {
  if (!GradientReducer::has_ties(module) || contains(stream, schedule::Opcode::kReduceTiedGrads)) {
    return;
  }
  throw ConfigError("pipeline.schedule is \"" + std::string(stream.name()) +
                    "\", whose stream has no ReduceTiedGrads, but the module has tied layers; "
                    "expected a schedule that reduces tied gradients, such as \"1f1b\"");
}

std::uint64_t Engine::State::identity_with(std::uint64_t schedule_identity,
                                           const model::Module& module) const {
  std::uint64_t hash = hash_with(schedule_identity, config.canonical_text);
  for (const model::LayerSpec& spec : module.layers) {
    hash = hash_with(hash, spec.type + "/" + spec.tie_key + "/");
  }
  return hash;
}

void Engine::State::build_stages() {
  for (const schedule::StageId id : rank->stage_ids()) {
    const auto stage = static_cast<std::size_t>(id.value);
    rank->pieces.push_back(edge_pieces(config, rank->map, id));
    rank->stages.push_back(std::make_unique<model::Stage>(
        rank->module, rank->bounds[stage], rank->bounds[stage + 1],
        stage_options(config, rank->context.model, rank->comms.data().size()), rank->context,
        rank->stages));
  }
  if (config.optimizer) {
    rank->updater = std::make_unique<Updater>(
        config, rank->stages, rank->context,
        share_of(config.zero, rank->comms.data().rank(), rank->comms.data().size()));
  }
}

void Engine::State::build_graphs() {
  std::vector<std::string> obstacles;
  for (const schedule::StageId id : rank->stage_ids()) {
    const auto stage = static_cast<std::size_t>(id.value);
    obstacles.push_back(
        obstacle_to_graphs(rank->module, rank->bounds[stage], rank->bounds[stage + 1]));
  }
  rank->graphs = std::make_unique<PassGraphs>(
      rank->context.allocator, std::move(obstacles),
      [this](std::string text) { log(tensor::LogLevel::kWarning, std::move(text)); });
}

}  // namespace penstock::engine
