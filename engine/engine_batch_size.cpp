// set_train_batch_size: all that depends on the number of micro batches is made anew and agreed on
// before anything changes.
#include <string>
#include <utility>

#include "engine/auto_schedule.h"
#include "engine/engine_state.h"
#include "engine/streams.h"
#include "schedule/io/costs_json.h"

namespace penstock::engine {

void Engine::State::set_train_batch_size(std::int64_t train_batch_size) {
  require_usable();
  Ballot mine = ballot(CallKind::kSetBatchSize);
  mine.options = train_batch_size;
  BatchTriple wanted;
  try {
    wanted = resolve_batch(
        {.train_batch_size = train_batch_size,
         .train_micro_batch_size_per_gpu = batch.train_micro_batch_size_per_gpu,
         .gradient_accumulation_steps = std::nullopt},
        data_parallel_size(world.size(), config.pipeline.stages, config.tensor_parallel.size));
  } catch (const std::exception& error) {
    mine.error = error_text(error);
  }
  agree(mine);
  if (wanted == batch) return;

  // With "auto", what the passes cost is known once a schedule was found.
  const auto micro_batches = static_cast<int>(wanted.gradient_accumulation_steps);
  std::optional<FoundSchedule> wanted_found = found;
  if (found) {
    wanted_found = search_together(world, config.pipeline, rank->map, micro_batches,
                                   schedule::costs_from_json(found->costs, "the costs known"));
  }
  TrainStream stream;
  vote_after(CallKind::kSetBatchSize, [&] {
    stream = make_train_stream(config.pipeline, options.schedule, wanted_found, micro_batches,
                               rank->pipe_rank);
    if (stream.schedule->stage_map() != rank->map) {
      throw ConfigError("[set_train_batch_size] the schedule for " + std::to_string(micro_batches) +
                        " micro batches has the stage map " +
                        to_text(stream.schedule->stage_map()) + "; expected that of this run, " +
                        to_text(rank->map));
    }
    require_tied_reduction(*stream.schedule, rank->module);
  });
  batch = wanted;
  if (ahead != nullptr) ahead->set_depth(micro_batches);
  found = std::move(wanted_found);
  identity = identity_with(stream.identity, rank->module);
  train_schedule = std::move(stream.schedule);
  if (world.rank() == 0) {
    log(tensor::LogLevel::kInfo,
        "train_batch_size is now " + std::to_string(train_batch_size) + ": " +
            std::to_string(micro_batches) + " micro batches of " +
            std::to_string(batch.train_micro_batch_size_per_gpu) + " samples for each replica",
        steps);
  }
}

void Engine::State::restore_batch_size(std::int64_t saved, std::int64_t configured) {
  if (configured != configured_batch_size) return;  // this run is to have another one
  try {
    set_train_batch_size(saved);
  } catch (const comm::CommError&) {
    throw;
  } catch (const std::exception&) {
    // On all ranks: this grid, or this schedule, cannot have it. That the sizes differ is told.
  }
}

}  // namespace penstock::engine
