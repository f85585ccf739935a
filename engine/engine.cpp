#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/engine_state.h"
#include "engine/report.h"
#include "model/partition.h"
#include "schedule/registry.h"

namespace penstock::engine {

namespace {

// FNV-1a, to compare texts between ranks.
std::uint64_t hash_text(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  }
  return hash;
}

model::Bounds partition(const model::Module& module, const Config& config) {
  const PipelineConfig& pipeline = config.pipeline;
  if (pipeline.bounds.empty()) {
    return model::partition_module(module, pipeline.stages, pipeline.partition,
                                   config.frozen_parameters);
  }
  const model::Bounds bounds(pipeline.bounds.begin(), pipeline.bounds.end());
  model::check_bounds(bounds, static_cast<std::int64_t>(module.layers.size()), pipeline.stages);
  return bounds;
}

// Whether the stream holds the opcode; looks from the end, where reductions are.
bool contains(const schedule::Schedule& schedule, schedule::Opcode opcode) {
  schedule::Step step;
  for (std::int64_t i = schedule.num_steps(); i-- > 0;) {
    step.clear();
    schedule.emit(i, step);
    if (std::ranges::any_of(step, [&](const auto& entry) { return entry.opcode == opcode; })) {
      return true;
    }
  }
  return false;
}

int default_threads(const comm::World& world) {
  return std::max(1, world.host_cores() / std::max(1, world.host_size()));
}

}  // namespace

Engine::State::State(comm::World& rank_world, model::Module module, Config run_config,
                     std::unique_ptr<model::DataSource> source, const EngineOptions& engine_options)
    : world(rank_world),
      config(std::move(run_config)),
      options(engine_options),
      data(std::move(source)) {
  // What is wrong here is wrong on every rank, or the vote says that the ranks differ.
  Ballot mine = ballot(CallKind::kConstruct);
  std::exception_ptr error;
  model::Bounds bounds;
  try {
    const DataParallelSize replicas = data_parallel_size(world.size(), config.pipeline.stages, 1);
    batch = resolve_batch(config.batch, replicas);
    bounds = partition(module, config);
    identity = hash_text(config.canonical_text);
    for (const model::LayerSpec& spec : module.layers) {
      identity = hash_text(spec.type + "/" + spec.tie_key + "/", identity);
    }
    mine.hash = identity;
    if (data != nullptr) source_position = data->position();
  } catch (const std::exception& caught) {
    error = std::current_exception();
    mine.error = error_text(caught);
  }
  try {
    vote(world, mine);
  } catch (const CallRefused&) {
    if (error) std::rethrow_exception(error);
    throw;
  }
  const int replicas = world.size() / config.pipeline.stages;
  rank = std::make_unique<RankState>(world, comm::Grid(config.pipeline.stages, replicas),
                                     std::move(module), tensor::make_cpu_allocator());
  rank->bounds = std::move(bounds);
  rank->context.threads = config.threads_per_rank.value_or(default_threads(world));
  rank->context.progress = &world;
  rank->context.random.seed = config.seed;
}

void Engine::State::check() {
  const auto layers = static_cast<std::int64_t>(rank->module.layers.size());
  if (layers < config.pipeline.stages) {
    throw ConfigError("pipeline.stages is " + std::to_string(config.pipeline.stages) +
                      ", but the module has only " + std::to_string(layers) +
                      " layers; expected at least one layer per stage");
  }
  if (batch.gradient_accumulation_steps > std::numeric_limits<std::int32_t>::max()) {
    throw ConfigError("gradient_accumulation_steps is " +
                      std::to_string(batch.gradient_accumulation_steps) +
                      "; expected fewer than 2^31 micro batches per step");
  }
  if (config.optimizer && !config.optimizer->groups.empty()) {
    group_patterns(*config.optimizer).check_used(model::parameter_names(rank->module));
  }
  train_schedule =
      schedule::make_schedule(config.pipeline.schedule,
                              {.ranks = config.pipeline.stages,
                               .micro_batches = static_cast<int>(batch.gradient_accumulation_steps),
                               .chunks = 1,
                               .rank = schedule::PipeRank(rank->comms.pipe().rank())});
  if (GradientReducer::has_ties(rank->module) &&
      !contains(*train_schedule, schedule::Opcode::kReduceTiedGrads)) {
    throw ConfigError("pipeline.schedule is \"" + config.pipeline.schedule +
                      "\", whose stream has no ReduceTiedGrads, but the module has tied layers; "
                      "expected a schedule that reduces tied gradients, such as \"1f1b\"");
  }
}

void Engine::State::build_stage() {
  const auto stage = static_cast<std::size_t>(rank->comms.pipe().rank());
  const model::StageOptions stage_options{.seed = config.seed,
                                          .frozen_patterns = config.frozen_parameters};
  rank->stages.push_back(std::make_unique<model::Stage>(
      rank->module, rank->bounds[stage], rank->bounds[stage + 1], stage_options, rank->context));
  if (config.optimizer) {
    rank->updater = std::make_unique<Updater>(config, rank->stages, rank->context);
  }
}

void Engine::State::build_groups() {
  rank->gradients = std::make_unique<GradientReducer>(rank->module, rank->bounds, rank->stages,
                                                      world, rank->grid, rank->comms);
  report = startup_report_text(*rank, batch, config);
}

Engine::Engine(comm::World& world, model::Module module, Config config,
               std::unique_ptr<model::DataSource> data, const EngineOptions& options)
    : state_(std::make_unique<State>(world, std::move(module), std::move(config), std::move(data),
                                     options)) {
  // A rank that runs out of memory here must not leave the others waiting.
  Ballot mine = state_->ballot(CallKind::kConstruct);
  std::exception_ptr error;
  try {
    state_->check();
    state_->build_stage();
  } catch (const std::exception& caught) {
    error = std::current_exception();
    mine.error = error_text(caught);
  }
  try {
    vote(world, mine);
  } catch (const CallRefused&) {
    if (error) std::rethrow_exception(error);
    throw;
  }
  state_->build_groups();
  if (world.rank() != 0) return;
  state_->log(tensor::LogLevel::kInfo, state_->report);
  for (const std::string& key : state_->config.without_effect) {
    state_->log(tensor::LogLevel::kWarning, "configuration key without effect: " + key);
  }
}

Engine::~Engine() = default;

TrainResult Engine::train_batch() {
  return state_->train();
}

EvalResult Engine::eval_batch(model::DataSource& data, const EvalOptions& options) {
  return state_->evaluate(data, options);
}

void Engine::save_checkpoint(const std::filesystem::path& directory, const std::string& tag,
                             const std::string& client_state) {
  state_->save(directory, tag, client_state);
}

LoadResult Engine::load_checkpoint(const std::filesystem::path& directory,
                                   const std::optional<std::string>& tag) {
  return state_->load(directory, tag);
}

void Engine::close() {
  state_->require_usable();
  state_->rank->gradients->close();
  state_->rank->comms.close();
  state_->failure = "it was closed";
}

void Engine::set_data(std::unique_ptr<model::DataSource> data) {
  state_->data = std::move(data);
  if (state_->data != nullptr) state_->source_position = state_->data->position();
}

void Engine::add_observer(Observer& observer) {
  state_->executor.add_observer(observer);
}
void Engine::remove_observer(Observer& observer) {
  state_->executor.remove_observer(observer);
}
void Engine::replace_handler(schedule::Opcode opcode, HandlerOverride handler) {
  state_->executor.replace_handler(opcode, std::move(handler));
}

bool Engine::is_first_stage() const {
  return state_->rank->comms.pipe().rank() == 0;
}
bool Engine::is_last_stage() const {
  return state_->is_last_stage();
}
const comm::Grid& Engine::grid() const {
  return state_->rank->grid;
}
const Config& Engine::config() const {
  return state_->config;
}
const BatchTriple& Engine::batch() const {
  return state_->batch;
}
std::span<const std::int64_t> Engine::bounds() const {
  return state_->rank->bounds;
}
model::Stage& Engine::stage() {
  return *state_->rank->stages.front();
}
std::int64_t Engine::global_steps() const {
  return state_->steps;
}
std::int64_t Engine::skipped_steps() const {
  return state_->skipped;
}
std::int64_t Engine::global_samples() const {
  return state_->samples;
}
std::int64_t Engine::data_position() const {
  return state_->source_position;
}
std::vector<double> Engine::lr() const {
  return state_->rank->updater == nullptr ? std::vector<double>{}
                                          : state_->rank->updater->next_lr();
}
const tensor::MemoryCounters& Engine::memory() const {
  return *state_->rank->context.allocator->counters();
}
const std::string& Engine::startup_report() const {
  return state_->report;
}

void Engine::State::require_usable() const {
  if (failure.empty()) {
    world.poll();  // throws the first cause when the world was aborted
    return;
  }
  throw tensor::InvalidArgument("[engine] this engine cannot be used any more: " + failure +
                                "; make a new one, and load the last checkpoint");
}

void Engine::State::log(tensor::LogLevel level, std::string message, std::int64_t step) const {
  if (options.log == nullptr) return;
  tensor::LogEvent event;
  event.level = level;
  event.message = std::move(message);
  event.rank = world.rank();
  event.stage = rank->comms.pipe().rank();
  event.data_index = rank->comms.data().rank();
  event.model_index = 0;
  event.step = step;
  options.log->write(event);
}

Ballot Engine::State::ballot(CallKind kind) {
  Ballot result;
  result.kind = kind;
  result.number = ++calls;
  result.hash = identity;
  return result;
}

bool Engine::State::is_last_stage() const {
  return rank->comms.pipe().rank() == rank->comms.pipe().size() - 1;
}

bool Engine::State::loads_data() const {
  return rank->comms.pipe().rank() == 0 || is_last_stage();
}

}  // namespace penstock::engine
