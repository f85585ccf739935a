// What save_checkpoint, load_checkpoint and load_module may be told, and what a load says.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::engine {

struct SaveOptions {
  // What the trainer wants back at load, kept as it is: any UTF-8 text.
  std::string client_state = {};
  // The same in parts: a JSON text by key. Refused are keys of engine.json itself, such as
  // "global_steps": whoever reads a checkpoint must not take one for the other.
  std::map<std::string, std::string> client_values = {};
  // Leave out the weights that frozen_parameters keeps from training. Such a checkpoint needs
  // LoadOptions::strict = false.
  bool exclude_frozen_parameters = false;
  // Whether `latest` names the new checkpoint. If not, it is only found by its tag, and retention
  // may remove it as it does any other.
  bool save_latest = true;
  // Return once the state is copied, and write beside the training that follows; left out: as
  // checkpoint.async says. See Engine::save_checkpoint.
  std::optional<bool> async = std::nullopt;
};

// The name under which a weight is stored, for its name in this model; "" for a weight that is to
// stay as it is. Optimizer state follows its weight.
using StoredNames = std::function<std::string(std::string_view name)>;

struct LoadOptions {
  // Whether layers and names must be those of the model. If not, what is missing in the checkpoint
  // stays as it is, and LoadResult says what did not fit. A wrong shape is an error in any case.
  bool strict = true;
  bool load_optimizer_states = true;     // moments and their count of updates
  bool load_lr_scheduler_states = true;  // the index of the learning-rate schedule
  // Weights alone: optimizer, schedules, counters, seed and data position stay as they are.
  bool module_only = false;
  StoredNames names = nullptr;  // null: the model's own names; else layers need not agree
};

// What a load found. The same on every rank.
struct LoadResult {
  std::string tag;
  std::string client_state;                          // as given to save_checkpoint
  std::map<std::string, std::string> client_values;  // as JSON texts
  // Only without strict; sorted. Optimizer state has names such as "0.weight/exp_avg".
  std::vector<std::string> missing;     // this model has it, the checkpoint does not
  std::vector<std::string> unexpected;  // weights in the checkpoint that nothing here asked for
};

struct LoadModuleOptions {
  bool strict = true;           // as in LoadOptions
  StoredNames names = nullptr;  // as in LoadOptions
};

// What load_module found. The same on every rank.
struct LoadModuleResult {
  std::vector<std::string> missing, unexpected;  // as in LoadResult
};

}  // namespace penstock::engine
