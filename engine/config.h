// What a run is configured with: DeepSpeed's JSON keys and Penstock's own, checked and typed.
// docs/config.md describes every key. A key that this version only accepts switched off has no
// member here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/device/devices.h"
#include "engine/config_error.h"
#include "engine/lr_schedule_config.h"
#include "engine/precision_config.h"
#include "model/optimizer.h"
#include "tensor/device.h"
#include "tensor/log.h"

namespace penstock::engine {

// The batch keys as given; batch_config.h completes them once the number of replicas is known.
struct BatchConfig {
  std::optional<std::int64_t> train_batch_size;
  std::optional<std::int64_t> train_micro_batch_size_per_gpu;
  std::optional<std::int64_t> gradient_accumulation_steps;
  bool operator==(const BatchConfig&) const = default;
};

// `optimizer.params` overlaid with the group's own settings.
struct ParameterGroupConfig {
  std::string match;  // ECMAScript regular expression, found anywhere in the parameter's name
  model::OptimizerOptions options;
  bool operator==(const ParameterGroupConfig&) const = default;
};

struct OptimizerConfig {
  model::OptimizerKind kind = model::OptimizerKind::kSgd;
  model::OptimizerOptions options;           // `optimizer.params`; "AdamW" is Adam in adam_w_mode
  std::vector<ParameterGroupConfig> groups;  // a parameter belongs to the first match

  // One learning rate per group in `groups` and a last one for the parameters that match none.
  std::vector<double> group_lrs() const;
  bool operator==(const OptimizerConfig&) const = default;
};

struct PipelineConfig {
  int stages = 1;             // ranks along the pipe
  std::optional<int> chunks;  // stages that each of them owns; none: as the schedule wants, or 1
  std::string stage_map;      // "loop", "v", or empty: the schedule's own, or stage_owners
  std::vector<std::int64_t> stage_owners;  // the rank of each stage; empty: by stage_map
  std::string partition = "best";  // best | uniform | parameters | type:REGEX, the word lower-case
  std::vector<std::int64_t> bounds;  // empty, or rising cuts of all stages that begin with 0
  std::string schedule = "1f1b";     // a registered name, file:PATH, auto, or auto:PATH
  std::string cost_file;             // with auto: empty, or costs to search with
  std::optional<std::int64_t> memory_limit;  // with auto: bytes of activations on a rank
  // Whether the ranks of a model group send a part each of what all of them have.
  bool pipe_partitioned = true;
  bool grad_partitioned = true;
  std::int64_t activation_checkpoint_interval = 0;  // layers that are recomputed together; 0: none
  bool operator==(const PipelineConfig&) const = default;
};

struct TensorParallelConfig {
  int size = 1;  // ranks that share each layer: the model axis of the grid
  bool sequence_parallel = false;
  bool operator==(const TensorParallelConfig&) const = default;
};

enum class CommunicationBackend { kAuto, kLocal, kMpi };

struct CommunicationConfig {
  CommunicationBackend backend = CommunicationBackend::kAuto;
  double timeout_seconds = 300.0;
  bool operator==(const CommunicationConfig&) const = default;
};

struct DeviceConfig {
  tensor::DeviceType type = tensor::DeviceType::kCpu;
  bool sharing = false;  // ranks of one host may share a device
  bool tf32 = false;
  bool graphs = false;  // passes are captured, and replayed
  comm::Transport transport = comm::Transport::kAuto;
  bool operator==(const DeviceConfig&) const = default;
};

// Ranks that save under different tags: take rank 0's, the same with a warning, or an error.
enum class TagValidation { kIgnore, kWarn, kFail };

struct CheckpointConfig {
  std::optional<int> keep_last;  // none: all
  double timeout_seconds = 3600.0;
  bool async = false;
  TagValidation tag_validation = TagValidation::kWarn;
  bool operator==(const CheckpointConfig&) const = default;
};

// Of csv_monitor and tensorboard.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;  // the files lie in output_path / job_name
  std::string job_name = "DeepSpeedJobName";
  bool operator==(const MonitorConfig&) const = default;
};

enum class NonFiniteGradients { kSkip, kStop };

struct Config {
  BatchConfig batch;
  std::optional<OptimizerConfig> optimizer;  // none: the engine evaluates only
  SchedulerConfig scheduler;
  double gradient_clipping = 1.0;  // 0 = off
  NonFiniteGradients non_finite_gradients = NonFiniteGradients::kSkip;
  PrecisionConfig precision;
  ZeroConfig zero;
  ReductionConfig reduction;
  PipelineConfig pipeline;
  TensorParallelConfig tensor_parallel;
  CommunicationConfig communication;
  DeviceConfig device;
  CheckpointConfig checkpoint;
  std::vector<std::string> frozen_parameters;  // regular expressions, found anywhere in the name
  bool dataloader_drop_last = false;           // of a repeating source, at the end of a pass
  bool dataloader_prefetch = true;             // the engine's own source, for the next step
  std::optional<std::int64_t> steps_per_print;
  MonitorConfig csv_monitor, tensorboard;
  bool wall_clock_breakdown = false;
  bool memory_breakdown = false;
  bool dump_state = false;
  tensor::LogLevel log_level = tensor::LogLevel::kDebug;  // the engine writes no event below it
  std::optional<int> threads_per_rank;                    // none: cores ÷ ranks on the host
  std::uint64_t seed = 1234;

  // "key: why" for each key that was given and has no effect; to be listed once at start.
  std::vector<std::string> without_effect;
  // The document after overrides, as canonical JSON: ranks compare it, a run folder keeps it.
  std::string canonical_text;

  bool operator==(const Config&) const;
};

// Parses and checks a configuration. `overrides` are "path=value" texts (config_override.h),
// applied first. `origin` begins the messages. Throws ConfigError that lists every fault of one
// kind at once.
Config parse_config(std::string_view json_text, std::string_view origin,
                    std::span<const std::string> overrides = {});

// The same from a file, whose path is the origin.
Config load_config_file(const std::filesystem::path& path,
                        std::span<const std::string> overrides = {});

}  // namespace penstock::engine
