#include "engine/config.h"

#include "engine/config_bind.h"
#include "engine/config_file.h"
#include "engine/config_override.h"
#include "engine/config_validate.h"
#include "engine/json_parse.h"

namespace penstock::engine {

std::vector<double> OptimizerConfig::group_lrs() const {
  std::vector<double> lrs;
  for (const ParameterGroupConfig& group : groups) lrs.push_back(group.options.lr);
  lrs.push_back(options.lr);
  return lrs;
}

namespace {

// Breakdowns come with the progress lines.
void add_reports_without_effect(Config& config) {
  if (config.steps_per_print) return;
  const bool monitored = config.csv_monitor.enabled || config.tensorboard.enabled;
  if (config.wall_clock_breakdown && !monitored) {
    config.without_effect.push_back(
        "wall_clock_breakdown: shown with the progress lines and by monitors; set steps_per_print");
  }
  if (config.memory_breakdown) {
    config.without_effect.push_back(
        "memory_breakdown: shown with the progress lines; set steps_per_print");
  }
}

}  // namespace

bool Config::operator==(const Config&) const = default;

Config parse_config(std::string_view json_text, std::string_view origin,
                    std::span<const std::string> overrides) {
  JsonValue root = parse_json(json_text, origin);
  for (const std::string& assignment : overrides) apply_override(root, assignment);
  validate_config(root, origin);
  Config config = bind_config(root);
  config.without_effect = keys_without_effect(root);
  const auto* cycle = std::get_if<OneCycleConfig>(&config.scheduler);
  if (cycle && cycle->cycle_momentum && config.optimizer->kind == model::OptimizerKind::kSgd) {
    config.without_effect.push_back("scheduler.params.cycle_momentum: SGD has no betas");
  }
  add_reports_without_effect(config);
  config.canonical_text = canonical_json(root);
  return config;
}

Config load_config_file(const std::filesystem::path& path, std::span<const std::string> overrides) {
  return parse_config(read_config_file(path, "", "a JSON configuration"), path.string(), overrides);
}

}  // namespace penstock::engine
