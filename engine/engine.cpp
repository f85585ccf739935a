#include "engine/engine.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/any_order.h"
#include "engine/auto_schedule.h"
#include "engine/engine_state.h"
#include "engine/loader.h"
#include "engine/streams.h"

namespace penstock::engine {

namespace {

PipePlace place_of(RankState& rank) {
  return {.replica = rank.comms.data().rank(),
          .replicas = rank.comms.data().size(),
          .model_rank = rank.comms.model().rank()};
}

}  // namespace

Engine::Engine(comm::World& world, model::Module module, Config config,
               std::unique_ptr<model::DataSource> data, const EngineOptions& options)
    : state_(std::make_unique<State>(world, std::move(module), std::move(config), std::move(data),
                                     options)) {}

Engine::~Engine() = default;

TrainResult Engine::train_batch() {
  return state_->train(nullptr);
}

TrainResult Engine::train_batch(model::DataSource& data) {
  return state_->train(&data);
}

EvalResult Engine::eval_batch(model::DataSource& data, const EvalOptions& options) {
  return state_->evaluate(data, options);
}

TrainResult Engine::step(const WholeBatch& batch, const StepOptions& options) {
  return state_->step(&batch, options);
}

TrainResult Engine::step(const std::vector<model::MicroBatch>& micro_batches,
                         const StepOptions& options) {
  return state_->step(&micro_batches, options);
}

EvalResult Engine::eval_step(const WholeBatch& batch, const EvalOptions& options) {
  return state_->eval_step(&batch, options);
}

EvalResult Engine::eval_step(const std::vector<model::MicroBatch>& micro_batches,
                             const EvalOptions& options) {
  return state_->eval_step(&micro_batches, options);
}

void Engine::set_train_batch_size(std::int64_t train_batch_size) {
  state_->set_train_batch_size(train_batch_size);
}

void Engine::save_checkpoint(const std::filesystem::path& directory, const std::string& tag,
                             const SaveOptions& options) {
  state_->save(directory, tag, options);
}

void Engine::finish_save() {
  state_->require_usable();
  state_->finish_save(CallKind::kFinishSave);
}

LoadResult Engine::load_checkpoint(const std::filesystem::path& directory,
                                   const std::optional<std::string>& tag,
                                   const LoadOptions& options) {
  return state_->load(directory, tag, options);
}

void Engine::save_module(const std::filesystem::path& folder) {
  state_->save_module(folder);
}

LoadModuleResult Engine::load_module(const std::filesystem::path& path,
                                     const LoadModuleOptions& options) {
  return state_->load_module(path, options);
}

std::vector<RankReport> Engine::rank_reports(const ReportOptions& options) {
  return state_->rank_reports(options);
}

void Engine::close() {
  state_->require_usable();
  std::exception_ptr save_error;
  try {
    state_->finish_save(CallKind::kClose);
  } catch (const checkpoint::FileError&) {
    save_error = std::current_exception();
  }
  state_->rank->gradients->close();
  state_->rank->comms.close();
  state_->failure = "it was closed";
  if (save_error) std::rethrow_exception(save_error);
}

void Engine::set_data(std::unique_ptr<model::DataSource> data) {
  if (data != nullptr) {
    require_samples(*data);
    state_->source_position = data->position();
  }
  state_->own_source(std::move(data));
}

void Engine::State::own_source(std::unique_ptr<model::DataSource> given) {
  ahead = nullptr;
  if (given != nullptr && config.dataloader_prefetch && rank->loads_data()) {
    // As far as the next step needs.
    const auto depth = static_cast<int>(batch.gradient_accumulation_steps);
    auto reader = std::make_unique<model::PrefetchSource>(std::move(given), depth);
    ahead = reader.get();
    given = std::move(reader);
  }
  source = given.get();
  data = std::move(given);
}

void Engine::set_batch_fn(BatchFunction function) {
  state_->batch_function = std::move(function);
}

void Engine::weights_written() {
  if (state_->rank->updater != nullptr) state_->rank->updater->forget_masters();
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
  return state_->rank->owns_first_stage();
}
bool Engine::is_last_stage() const {
  return state_->rank->owns_last_stage();
}
bool Engine::loads_data() const {
  return state_->rank->loads_data();
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
const schedule::StageMap& Engine::stage_map() const {
  return state_->rank->map;
}
std::span<const std::unique_ptr<model::Stage>> Engine::stages() {
  return state_->rank->stages;
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
const FoundSchedule* Engine::found_schedule() const {
  return state_->found ? &*state_->found : nullptr;
}
RankMemory Engine::planned_memory(const model::MicroBatch& example) const {
  return state_->planned_memory(example);
}
RankMemory Engine::State::planned_memory(const model::MicroBatch& example) const {
  std::vector<const schedule::Schedule*> streams = {train_schedule.get()};
  std::unique_ptr<schedule::Schedule> probing;
  if (is_auto(config.pipeline) && config.pipeline.cost_file.empty()) {
    const auto micro_batches = static_cast<int>(batch.gradient_accumulation_steps);
    if (!found) {
      return plan_any_order(rank->module, config, rank->bounds, rank->map,
                            std::span(&rank->pipe_rank, 1), micro_batches, example, place_of(*rank))
          .front();
    }
    probing =
        make_train_stream(config.pipeline, nullptr, std::nullopt, micro_batches, rank->pipe_rank)
            .schedule;
    streams.push_back(probing.get());
  }
  const std::vector<RankMemory> plans =
      plan_memory(rank->module, config, rank->bounds, streams, example, place_of(*rank));
  return larger_of(plans.front(), plans.back());
}
RankMemory Engine::planned_eval_memory(const model::MicroBatch& example,
                                       const EvalOptions& options) const {
  RankState& rank = *state_->rank;
  const auto schedule =
      make_eval_stream(rank.map, state_->eval_micro_batches(options), rank.pipe_rank);
  const schedule::Schedule* const stream = schedule.get();
  return plan_memory(rank.module, state_->config, rank.bounds, std::span(&stream, 1), example,
                     place_of(rank))
      .front();
}
void Engine::measure_memory(SendTiming timing) {
  if (state_->memory_meter != nullptr) state_->executor.remove_observer(*state_->memory_meter);
  state_->memory_meter = std::make_unique<MemoryMeter>(*state_->rank, timing);
  state_->executor.add_observer(*state_->memory_meter);
}
const MeasuredMemory& Engine::measured_memory() const {
  static constexpr MeasuredMemory kNothing;
  return state_->memory_meter == nullptr ? kNothing : state_->memory_meter->measured();
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
  if (options.log == nullptr || level < config.log_level) return;
  tensor::LogEvent event;
  event.level = level;
  event.message = std::move(message);
  event.rank = world.rank();
  for (const schedule::StageId stage : rank->stage_ids()) event.stages.push_back(stage.value);
  event.data_index = rank->comms.data().rank();
  event.model_index = rank->comms.model().rank();
  event.step = step;
  options.log->write(event);
}

Ballot Engine::State::ballot(CallKind kind) {
  Ballot result;
  result.kind = kind;
  result.number = ++calls;
  result.hash = identity;
  result.save_ready = saving.ready();
  return result;
}

std::int64_t Engine::State::agree(const Ballot& mine) {
  const Agreement agreed = vote(world, mine);
  // Every rank has the same save under way, or none.
  if (agreed.save_ready) advance_save();
  return agreed.position;
}

void Engine::State::refuse_together(CallKind kind, const std::function<void()>& work) {
  Ballot mine = ballot(kind);
  try {
    work();
  } catch (const std::exception& error) {
    mine.error = error_text(error);
  }
  agree(mine);
}

void Engine::State::vote_after(CallKind kind, const std::function<void()>& work) {
  std::exception_ptr error;
  std::string text;
  try {
    work();
  } catch (const std::exception& caught) {
    error = std::current_exception();
    text = error_text(caught);
  }
  Ballot mine = ballot(kind);
  mine.error = std::move(text);
  try {
    agree(mine);
  } catch (const CallRefused&) {
    if (error) std::rethrow_exception(error);
    throw;
  }
}

}  // namespace penstock::engine
