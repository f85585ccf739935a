// Configurations and overrides of their keys: whatever bytes they are, they are read, or refused
// with a ConfigError; and what is read is the same after it was written.
#include <span>
#include <string>

#include "engine/config.h"
#include "tests/fuzz/fuzz.h"

namespace penstock::fuzz {
namespace {

constexpr std::string_view kDocument = R"({
  "train_batch_size": 32, "gradient_clipping": 0.5, "frozen_parameters": ["^0\\.(a|b)*"],
  "optimizer": {"type": "Adam", "params": {"lr": 3e-4, "betas": [0.8, 0.95]},
                "groups": [{"match": "bias$", "weight_decay": 0}]},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": [0.1, 0.2], "cycle_max_lr": 1,
                "cycle_first_step_size": 10, "cycle_second_stair_count": 2, "decay_step_size": 5}},
  "pipeline": {"stages": 2, "bounds": [0, 3, 6]}, "fp16": {"enabled": false, "loss_scale": 0},
  "zero_optimization": {"stage": 0, "reduce_bucket_size": 5e8, "offload_param": {"device": "none"}}
})";
constexpr std::string_view kReports = R"({"train_micro_batch_size_per_gpu": 4, "seed": 7,
  "gradient_accumulation_steps": 8, "optimizer": {"type": "SGD", "params": {"momentum": 0.9}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 2000,
                "warmup_type": "linear"}},
  "pipeline": {"stages": 2, "stage_map": [0, 1, 1, 0], "schedule": "zbv", "partition": "type:a|b"},
  "csv_monitor": {"enabled": true, "output_path": "out", "job_name": "\u00e9\ud83d\ude00"},
  "tensorboard": {"enabled": "auto"}, "wandb": {"enabled": false, "team": null},
  "communication": {"backend": "local", "timeout_seconds": 1.5e2}, "log_level": "warning",
  "checkpoint": {"keep_last": 3, "tag_validation": "Fail"}, "steps_per_print": 10})";

bool reads(std::string_view text, std::span<const std::string> overrides) {
  engine::Config config;
  try {
    config = engine::parse_config(text, "fuzz", overrides);
  } catch (const engine::ConfigError& error) {
    require(std::string_view(error.what()).starts_with("[config] "), "errors say where they are");
    return false;
  }
  require(engine::parse_config(config.canonical_text, "again") == config,
          "what is read is the same after it was written");
  return true;
}

std::vector<std::string> tokens_of_json() {
  return {"{",
          "}",
          "[",
          "]",
          ":",
          ",",
          "\"",
          "\\",
          "null",
          "true",
          "false",
          "\"auto\"",
          "0",
          "1",
          "-1",
          "1e9",
          "1e400",
          "0.5",
          "\"type\"",
          "\"params\"",
          "\"enabled\"",
          "\"Adam\"",
          "\"SGD\"",
          "\"lr\": 1,",
          "\"seed\"",
          "\\u0000",
          "\\ud800",
          "9223372036854775808",
          "\"stages\"",
          "\"groups\"",
          "(a*)*",
          "\xc3\xa9",
          "\"OneCycle\"",
          "\"WarmupLR\"",
          " ",
          "\n"};
}

}  // namespace

Target config_target() {
  return {"config",
          {std::string(kDocument), std::string(kReports)},
          tokens_of_json(),
          ",\n",
          [](std::string_view input) { return reads(input, {}); }};
}

Target override_target() {
  Target target{"override", {}, tokens_of_json(), "=.", [](std::string_view input) {
                  const std::string overrides[] = {std::string(input)};
                  return reads(kDocument, overrides);
                }};
  target.seeds = {"optimizer.groups.0.match=^bias[0-9]+$", "scheduler.params.decay_lr_rate=0.0101",
                  "pipeline.bounds=[0,2,4]", "optimizer.groups.0={\"match\":\"a\",\"lr\":1}",
                  "seed=5"};
  for (const char* token : {"optimizer", "groups", "=", ".", "0", "pipeline"}) {
    target.tokens.emplace_back(token);
  }
  return target;
}

}  // namespace penstock::fuzz
