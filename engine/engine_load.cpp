// Loading: everything is checked first; then all ranks change, or none does.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "engine/engine_state.h"
#include "engine/hash.h"
#include "engine/resumed_settings.h"
#include "engine/state_tensors.h"

namespace penstock::engine {

namespace {

// What the ranks must agree on.
std::int64_t options_number(const LoadOptions& options) {
  std::uint64_t hash = kEmptyHash;
  for (const bool option :
       {options.strict, options.load_optimizer_states, options.load_lr_scheduler_states,
        options.module_only, options.names != nullptr}) {
    hash = hash_with(hash, static_cast<std::uint64_t>(option));
  }
  return static_cast<std::int64_t>(hash);
}

TensorSource source_of(const checkpoint::Reader& reader) {
  TensorSource from{.what = "the checkpoint", .casts = true};
  for (const auto& [name, info] : reader.tensors()) {
    if (name.find('/') == std::string::npos) from.weights.push_back(name);
  }
  from.find = [&reader](const std::string& name) {
    return reader.contains(name) ? &reader.info(name) : nullptr;
  };
  from.read = [&reader](const std::string& name, const checkpoint::Region& region,
                        const tensor::Tensor& destination) {
    reader.read(name, region, destination, checkpoint::Cast::kFloating);
  };
  return from;
}

TensorSource source_of(const checkpoint::Weights& weights, const std::filesystem::path& path) {
  TensorSource from{.what = path.string(), .casts = true};
  for (const auto& [name, info] : weights.tensors()) from.weights.push_back(name);
  from.find = [&weights](const std::string& name) {
    return weights.contains(name) ? &weights.info(name) : nullptr;
  };
  from.read = [&weights](const std::string& name, const checkpoint::Region& region,
                         const tensor::Tensor& destination) {
    weights.read(name, region, destination, checkpoint::Cast::kFloating);
  };
  return from;
}

std::vector<StateTensor> tensors_to_load(RankState& rank, bool optimizer_states) {
  std::vector<StateTensor> tensors = state_tensors(rank);
  if (!optimizer_states) {
    std::erase_if(tensors, [](const StateTensor& tensor) { return !tensor.state.empty(); });
  }
  return tensors;
}

// The settings of a checkpoint that a run goes on from and that it changes, for a warning.
std::vector<std::string> changes(const EngineJson& saved, const Config& config,
                                 std::int64_t train_batch_size) {
  std::vector<std::string> changed = changed_settings(saved.config, config.canonical_text);
  if (saved.train_batch_size != train_batch_size) {
    changed.push_back("train_batch_size was " + std::to_string(saved.train_batch_size) + ", is " +
                      std::to_string(train_batch_size));
  }
  if (saved.seed != config.seed) {
    changed.push_back("seed was " + std::to_string(saved.seed) +
                      ", with which dropout goes on, but the configuration says " +
                      std::to_string(config.seed));
  }
  return changed;
}

// What the options leave out, for the log.
std::string left_out(const LoadOptions& options) {
  if (options.module_only) {
    return "weights alone; optimizer, schedules, counters and data position stay as they are";
  }
  std::string text;
  if (!options.load_optimizer_states) text = "the optimizer's states stay as they are";
  if (!options.load_lr_scheduler_states) {
    text +=
        (text.empty() ? "" : ", ") + std::string("the learning-rate schedule stays where it is");
  }
  return text;
}

}  // namespace

LoadResult Engine::State::load(const std::filesystem::path& directory,
                               const std::optional<std::string>& tag,
                               const LoadOptions& load_options) {
  require_usable();
  finish_save(CallKind::kLoad);
  Ballot mine = ballot(CallKind::kLoad);
  mine.options = options_number(load_options);
  agree(mine);
  const comm::LongWaits waits(world, config.checkpoint.timeout_seconds);
  const checkpoint::Reader reader = checkpoint::Reader::open(world, directory, tag);
  const TensorSource from = source_of(reader);
  const bool everything = !load_options.module_only;
  EngineJson saved;
  LoadPlan plan;
  refuse_together(CallKind::kLoad, [&] {
    saved = parse_engine_json(reader.engine_json());
    if (load_options.strict && load_options.names == nullptr) {
      check_layers(saved.layers, layer_types(rank->module));
    }
    plan = make_load_plan(tensors_to_load(*rank, everything && load_options.load_optimizer_states),
                          from, load_options.names);
  });
  const std::string advice = saved.frozen_excluded ? "; it was saved without frozen parameters: "
                                                     "expected strict = false for such a checkpoint"
                                                   : "";
  LoadModuleResult left =
      agree_to_load(CallKind::kLoad, plan, from, load_options.strict, advice, [&] {
        if (everything && source != nullptr && rank->loads_data()) {
          source->seek(saved.data_position);
        }
      });
  read_all(plan, from);
  if (everything) adopt(saved, reader.tag(), load_options);
  const std::string kept = left_out(load_options);
  if (world.rank() == 0 && !kept.empty()) {
    log(tensor::LogLevel::kInfo, "loaded from " + reader.tag() + ": " + kept, steps);
  }
  return {.tag = reader.tag(),
          .client_state = saved.client_state,
          .client_values = saved.client_values,
          .missing = std::move(left.missing),
          .unexpected = std::move(left.unexpected)};
}

LoadModuleResult Engine::State::load_module(const std::filesystem::path& path,
                                            const LoadModuleOptions& load_options) {
  require_usable();
  Ballot mine = ballot(CallKind::kLoadModule);
  mine.options = (load_options.strict ? 1 : 0) + (load_options.names ? 2 : 0);
  agree(mine);
  const comm::LongWaits waits(world, config.checkpoint.timeout_seconds);
  std::optional<checkpoint::Weights> weights;
  TensorSource from;
  LoadPlan plan;
  refuse_together(CallKind::kLoadModule, [&] {
    weights.emplace(checkpoint::Weights::open(path));
    from = source_of(*weights, path);
    plan = make_load_plan(tensors_to_load(*rank, /*optimizer_states=*/false), from,
                          load_options.names);
  });
  LoadModuleResult left =
      agree_to_load(CallKind::kLoadModule, plan, from, load_options.strict, "", [] {});
  read_all(plan, from);
  return left;
}

LoadModuleResult Engine::State::agree_to_load(CallKind kind, const LoadPlan& plan,
                                              const TensorSource& from, bool strict,
                                              const std::string& advice,
                                              const std::function<void()>& more) {
  LoadModuleResult left = misfits(world, plan, from);
  refuse_together(kind, [&] {
    if (strict) require_fit(plan, left, from, advice);
    more();
  });
  return left;
}

void Engine::State::read_all(const LoadPlan& plan, const TensorSource& from) {
  try {
    if (rank->updater != nullptr) rank->updater->settle_masters(rank->context);
    read_tensors(rank->host, plan, from);
    if (rank->updater != nullptr) renew_masters(plan);
    world.all().barrier().wait();  // for the ranks that read longest
  } catch (const comm::CommError&) {
    throw;  // another rank could not
  } catch (const std::exception& error) {
    failure = error.what();
    world.abort({.rank = world.rank(), .message = failure});
    throw;
  }
}

void Engine::State::renew_masters(const LoadPlan& plan) {
  std::set<std::string> names;  // of weights that were read without their masters
  for (const LoadPlan::Item& item : plan.found) {
    if (item.tensor.state.empty()) names.insert(item.tensor.name);
  }
  for (const LoadPlan::Item& item : plan.found) {
    if (item.tensor.state == ParameterState::kMaster) names.erase(item.tensor.name);
  }
  rank->updater->renew_masters(rank->context, names);
}

void Engine::State::adopt(const EngineJson& saved, const std::string& tag,
                          const LoadOptions& load_options) {
  steps = print_step = saved.global_steps;
  samples = saved.global_samples;
  skipped = saved.skipped_steps;
  source_position = saved.data_position;
  if (monitors != nullptr) monitors->begin_at(samples);
  rank->context.random.seed = saved.seed;
  if (rank->updater != nullptr) {
    if (load_options.load_optimizer_states) rank->updater->set_updates(saved.updates);
    if (load_options.load_lr_scheduler_states) rank->updater->set_lr_updates(saved.lr_updates);
    if (saved.loss_scale && load_options.load_optimizer_states) {
      rank->updater->scaler().restore(*saved.loss_scale);
    }
  }
  restore_batch_size(saved.train_batch_size, saved.configured_train_batch_size);
  if (world.rank() == 0) {
    for (const std::string& change : changes(saved, config, batch.train_batch_size)) {
      log(tensor::LogLevel::kWarning, "since " + tag + " was saved: " + change, steps);
    }
  }
  restore_schedule(saved.found_schedule);
}

}  // namespace penstock::engine
