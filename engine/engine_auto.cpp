// pipeline.schedule "auto": when it measures, searches and changes over.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "engine/auto_schedule.h"
#include "engine/config_error.h"
#include "engine/engine_state.h"
#include "engine/streams.h"
#include "engine/transfer_cost.h"

namespace penstock::engine {

namespace {

// The first step touches memory for the first time, and is not measured.
constexpr int kUnmeasuredSteps = 1;
constexpr int kMeasuredSteps = 2;

}  // namespace

void Engine::State::begin_probing() {
  if (!is_auto(config.pipeline) || found) return;
  if (probing_steps == kUnmeasuredSteps + kMeasuredSteps) return find_schedule();
  if (probing_steps >= kUnmeasuredSteps) {
    if (!config.wall_clock_breakdown) executor.add_observer(*device_wait);
    executor.add_observer(meter);
    if (activations == nullptr) activations = std::make_unique<ActivationMeter>(*rank);
    executor.add_observer(*activations);
  }
}

void Engine::State::end_probing() {
  if (!is_auto(config.pipeline) || found) return;
  if (!config.wall_clock_breakdown) executor.remove_observer(*device_wait);
  executor.remove_observer(meter);
  if (activations != nullptr) executor.remove_observer(*activations);
  ++probing_steps;
}

void Engine::State::find_schedule() {
  schedule::Costs costs = gather_costs(meter, *train_schedule, rank->comms.pipe(),
                                       rank->comms.data(), activations->bytes());
  double largest = 0.0;
  for (const schedule::StageCosts& stage : costs.stages) {
    largest = std::max(largest, stage.message_bytes);
  }
  const TransferCost transfer = measure_transfers(world, rank->comms.pipe(), rank->context,
                                                  static_cast<std::int64_t>(largest));
  costs.latency = transfer.latency;
  costs.seconds_per_byte = transfer.seconds_per_byte;
  costs = rounded(std::move(costs));
  found = search_together(world, config.pipeline, rank->map,
                          static_cast<int>(batch.gradient_accumulation_steps), costs);
  adopt_schedule();
  if (world.rank() == 0) {
    log(tensor::LogLevel::kInfo,
        "found a schedule (" + found->name + "): its passes are predicted to take " +
            std::to_string(found->makespan * 1e3) + " ms per step",
        steps);
  }
}

// Which table a checkpoint has is the same on every rank, and so is what comes of it.
void Engine::State::restore_schedule(const std::optional<FoundSchedule>& saved) {
  if (!is_auto(config.pipeline) || !config.pipeline.cost_file.empty() || !saved) return;
  const std::optional<FoundSchedule> before = std::exchange(found, saved);
  const auto keep_own = [&](const std::exception& error) {
    found = before;
    if (world.rank() != 0) return;
    log(tensor::LogLevel::kWarning,
        std::string(
            "the checkpoint's schedule is not one for this run, which looks for its own: ") +
            error.what());
  };
  try {
    adopt_schedule();
  } catch (const schedule::ScheduleError& error) {
    keep_own(error);
  } catch (const ConfigError& error) {
    keep_own(error);
  }
}

void Engine::State::adopt_schedule() {
  TrainStream stream =
      make_train_stream(config.pipeline, options.schedule, found,
                        static_cast<int>(batch.gradient_accumulation_steps), rank->pipe_rank);
  train_schedule = std::move(stream.schedule);
  identity = identity_with(stream.identity, rank->module);
}

}  // namespace penstock::engine
