// Saving: at once, and beside the training; weights alone.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/module_files.h"
#include "engine/engine_state.h"
#include "engine/hash.h"
#include "engine/state_tensors.h"

namespace penstock::engine {

namespace {

// What the ranks must agree on.
std::int64_t options_number(const SaveOptions& options, bool async) {
  std::uint64_t hash = kEmptyHash;
  for (const bool option : {options.exclude_frozen_parameters, options.save_latest, async}) {
    hash = hash_with(hash, static_cast<std::uint64_t>(option));
  }
  return static_cast<std::int64_t>(hash);
}

}  // namespace

void Engine::State::save(const std::filesystem::path& directory, const std::string& tag,
                         const SaveOptions& save_options) {
  require_usable();
  finish_save(CallKind::kSave);
  const bool async = save_options.async.value_or(config.checkpoint.async);
  Ballot mine = ballot(CallKind::kSave);
  mine.options = options_number(save_options, async);
  checkpoint::SaveRequest request;
  try {
    if (rank->updater != nullptr) rank->updater->settle_masters(rank->context);
    request.engine_json = to_text(engine_json(save_options));
    request.files = plan_files(*rank, save_options.exclude_frozen_parameters);
    if (async) saving.copy_into_own_memory(request);
  } catch (const std::exception& error) {
    mine.error = error_text(error);
  }
  agree(mine);
  request.directory = directory;
  request.tag = agreed_tag(tag.empty() ? "global_step" + std::to_string(steps) : tag);
  request.keep_last = config.checkpoint.keep_last.value_or(0);
  request.save_latest = save_options.save_latest;
  const comm::LongWaits waits(world, config.checkpoint.timeout_seconds);
  if (async) {
    saving.begin(world, std::move(request));
  } else {
    note_saved(request.tag, checkpoint::save(world, request));
  }
}

EngineJson Engine::State::engine_json(const SaveOptions& save_options) const {
  EngineJson engine;
  engine.global_steps = steps;
  engine.global_samples = samples;
  engine.skipped_steps = skipped;
  engine.data_position = source_position;
  engine.seed = rank->context.random.seed;
  engine.train_batch_size = batch.train_batch_size;
  engine.configured_train_batch_size = configured_batch_size;
  if (rank->updater != nullptr) {
    engine.updates = rank->updater->updates();
    engine.lr_updates = rank->updater->lr_updates();
    if (rank->updater->scaler().dynamic()) engine.loss_scale = rank->updater->scaler().state();
  }
  engine.layers = layer_types(rank->module);
  engine.config = config.canonical_text;
  engine.frozen_excluded = save_options.exclude_frozen_parameters;
  engine.client_state = save_options.client_state;
  engine.client_values = save_options.client_values;
  engine.found_schedule = found;
  return engine;
}

std::string Engine::State::agreed_tag(const std::string& tag) {
  const std::vector<std::string> tags = world.all().all_gather_text(tag);
  const bool same = std::ranges::all_of(tags, [&](const auto& other) { return other == tags[0]; });
  if (same || config.checkpoint.tag_validation == TagValidation::kIgnore) return tags[0];
  const std::string what = "the ranks save under different tags: " + comm::by_rank(tags);
  if (config.checkpoint.tag_validation == TagValidation::kFail) {
    throw CallRefused("[save_checkpoint] " + what +
                      "; expected one, since checkpoint.tag_validation is \"Fail\"");
  }
  if (world.rank() == 0) {
    log(tensor::LogLevel::kWarning, what + "; all take that of rank 0", steps);
  }
  return tags[0];
}

void Engine::State::finish_save(CallKind kind) {
  if (!saving.under_way()) return;
  agree(ballot(kind));
  if (!saving.under_way()) return;  // that was all there was to wait for
  const std::string tag = saving.tag();
  const comm::LongWaits waits(world, config.checkpoint.timeout_seconds);
  note_saved(tag, saving.finish());
}

void Engine::State::advance_save() {
  if (!saving.under_way()) return;
  const std::string tag = saving.tag();
  if (const auto result = saving.advance()) note_saved(tag, *result);
}

void Engine::State::note_saved(const std::string& tag, const checkpoint::SaveResult& result) {
  if (world.rank() != 0) return;
  log(tensor::LogLevel::kInfo,
      "checkpoint " + tag + " is complete: " + std::to_string(result.bytes) + " bytes", steps);
  for (const std::string& warning : result.warnings) {
    log(tensor::LogLevel::kWarning, warning, steps);
  }
}

void Engine::State::save_module(const std::filesystem::path& folder) {
  require_usable();
  agree(ballot(CallKind::kSaveModule));
  const comm::LongWaits waits(world, config.checkpoint.timeout_seconds);
  std::vector<checkpoint::NamedTensor> weights;
  try {
    weights = whole_weights(*rank);  // collective, so that a rank without memory must not leave it
  } catch (const comm::CommError&) {
    throw;
  } catch (const std::exception& error) {
    failure = error.what();
    world.abort({.rank = world.rank(), .message = failure});
    throw;
  }
  checkpoint::save_module_files(world, folder, weights);
}

}  // namespace penstock::engine
