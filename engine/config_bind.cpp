#include "engine/config_bind.h"

#include <algorithm>
#include <cctype>

namespace penstock::engine {

namespace {

void read_options(const SectionReader& section, model::OptimizerOptions& options) {
  section.read("lr", options.lr);
  section.read("weight_decay", options.weight_decay);
  section.read("momentum", options.momentum);
  section.read("dampening", options.dampening);
  section.read("eps", options.eps);
  if (const JsonValue* betas = section.find("betas")) {
    const auto& pair = *betas->get_if<JsonValue::Array>();
    options.beta1 = *pair[0].as_number();
    options.beta2 = *pair[1].as_number();
  }
}

std::optional<OptimizerConfig> bind_optimizer(const JsonValue& root) {
  const SectionReader section(root, "optimizer.");
  if (section.find("type") == nullptr) return {};
  OptimizerConfig optimizer;
  section.read_choice("type", optimizer.kind,
                      {{"SGD", model::OptimizerKind::kSgd},
                       {"Adam", model::OptimizerKind::kAdam},
                       {"AdamW", model::OptimizerKind::kAdam},
                       {"Lamb", model::OptimizerKind::kLamb},
                       {"Lion", model::OptimizerKind::kLion}});
  if (optimizer.kind == model::OptimizerKind::kLion) optimizer.options.beta2 = 0.99;
  const SectionReader params(root, "optimizer.params.");
  params.read("adam_w_mode", optimizer.options.adam_w_mode);
  params.read("bias_correction", optimizer.options.bias_correction);
  params.read("nesterov", optimizer.options.nesterov);
  params.read("max_coeff", optimizer.options.max_coeff);
  params.read("min_coeff", optimizer.options.min_coeff);
  read_options(params, optimizer.options);
  if (const JsonValue* groups = section.find("groups")) {
    for (const JsonValue& item : *groups->get_if<JsonValue::Array>()) {
      ParameterGroupConfig group{.match = "", .options = optimizer.options};
      const SectionReader own(item);
      own.read("match", group.match);
      read_options(own, group.options);
      optimizer.groups.push_back(std::move(group));
    }
  }
  return optimizer;
}

PipelineConfig bind_pipeline(const JsonValue& root) {
  const SectionReader section(root, "pipeline.");
  PipelineConfig pipeline;
  section.read("stages", pipeline.stages);
  section.read("chunks", pipeline.chunks);
  if (const JsonValue* map = section.find("stage_map")) {
    if (map->get_if<std::string>() != nullptr) {
      section.read("stage_map", pipeline.stage_map);
    } else {
      section.read("stage_map", pipeline.stage_owners);
    }
  }
  section.read("partition", pipeline.partition);
  section.read("bounds", pipeline.bounds);
  section.read("schedule", pipeline.schedule);
  section.read("cost_file", pipeline.cost_file);
  section.read("memory_limit", pipeline.memory_limit);
  section.read("pipe_partitioned", pipeline.pipe_partitioned);
  section.read("grad_partitioned", pipeline.grad_partitioned);
  section.read("activation_checkpoint_interval", pipeline.activation_checkpoint_interval);
  // The words ignore case; a regular expression after "type:" is kept as it is.
  const auto word_end = std::min(pipeline.partition.find(':'), pipeline.partition.size());
  const auto lower = [](unsigned char c) { return static_cast<char>(std::tolower(c)); };
  std::transform(pipeline.partition.begin(),
                 pipeline.partition.begin() + static_cast<std::ptrdiff_t>(word_end),
                 pipeline.partition.begin(), lower);
  // So do they before a path.
  const std::size_t colon = std::min(pipeline.schedule.find(':'), pipeline.schedule.size());
  std::transform(pipeline.schedule.begin(),
                 pipeline.schedule.begin() + static_cast<std::ptrdiff_t>(colon),
                 pipeline.schedule.begin(), lower);
  std::ranges::transform(pipeline.stage_map, pipeline.stage_map.begin(), lower);
  return pipeline;
}

CommunicationConfig bind_communication(const JsonValue& root) {
  const SectionReader section(root, "communication.");
  CommunicationConfig communication;
  section.read_choice("backend", communication.backend,
                      {{"auto", CommunicationBackend::kAuto},
                       {"local", CommunicationBackend::kLocal},
                       {"mpi", CommunicationBackend::kMpi}});
  section.read("timeout_seconds", communication.timeout_seconds);
  return communication;
}

DeviceConfig bind_device(const JsonValue& root) {
  using tensor::DeviceType;
  const SectionReader section(root, "device.");
  DeviceConfig device;
  section.read_choice("type", device.type,
                      {{"cpu", DeviceType::kCpu}, {"cuda", DeviceType::kCuda}});
  section.read("sharing", device.sharing);
  section.read("tf32", device.tf32);
  section.read("graphs", device.graphs);
  section.read_choice("transport", device.transport,
                      {{"auto", comm::Transport::kAuto},
                       {"nccl", comm::Transport::kNccl},
                       {"staged", comm::Transport::kStaged}});
  return device;
}

MonitorConfig bind_monitor(const JsonValue& root, const std::string& prefix) {
  const SectionReader section(root, prefix);
  MonitorConfig monitor;
  section.read("enabled", monitor.enabled);
  section.read("output_path", monitor.output_path);
  section.read("job_name", monitor.job_name);
  return monitor;
}

void bind_reports(const JsonValue& root, Config& config) {
  using tensor::LogLevel;
  const SectionReader top(root);
  top.read("steps_per_print", config.steps_per_print);
  config.csv_monitor = bind_monitor(root, "csv_monitor.");
  config.tensorboard = bind_monitor(root, "tensorboard.");
  top.read("wall_clock_breakdown", config.wall_clock_breakdown);
  top.read("memory_breakdown", config.memory_breakdown);
  top.read("dump_state", config.dump_state);
  top.read_choice("log_level", config.log_level,
                  {{"debug", LogLevel::kDebug},
                   {"info", LogLevel::kInfo},
                   {"warning", LogLevel::kWarning},
                   {"warn", LogLevel::kWarning},
                   {"error", LogLevel::kError},
                   {"critical", LogLevel::kError}});
}

}  // namespace

void SectionReader::read(std::string_view key, bool& out) const {
  if (const JsonValue* value = find(key)) out = *value->get_if<bool>();
}

void SectionReader::read(std::string_view key, int& out) const {
  if (const JsonValue* value = find(key)) out = static_cast<int>(*value->as_int());
}

void SectionReader::read(std::string_view key, std::int64_t& out) const {
  if (const JsonValue* value = find(key)) out = *value->as_int();
}

void SectionReader::read(std::string_view key, double& out) const {
  if (const JsonValue* value = find(key)) out = *value->as_number();
}

void SectionReader::read(std::string_view key, std::string& out) const {
  if (const JsonValue* value = find(key)) out = *value->get_if<std::string>();
}

void SectionReader::read(std::string_view key, PerGroup& out) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return;
  if (const auto* items = value->get_if<JsonValue::Array>()) {
    std::vector<double> values;
    for (const JsonValue& item : *items) values.push_back(*item.as_number());
    out = std::move(values);
  } else {
    out = *value->as_number();
  }
}

void SectionReader::read(std::string_view key, std::vector<std::int64_t>& out) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return;
  out.clear();
  for (const JsonValue& item : *value->get_if<JsonValue::Array>()) {
    out.push_back(*item.as_int());
  }
}

void SectionReader::read(std::string_view key, std::vector<std::string>& out) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return;
  out.clear();
  for (const JsonValue& item : *value->get_if<JsonValue::Array>()) {
    out.push_back(*item.get_if<std::string>());
  }
}

Config bind_config(const JsonValue& root) {
  const SectionReader top(root);
  Config config;
  top.read("train_batch_size", config.batch.train_batch_size);
  top.read("train_micro_batch_size_per_gpu", config.batch.train_micro_batch_size_per_gpu);
  top.read("gradient_accumulation_steps", config.batch.gradient_accumulation_steps);
  config.optimizer = bind_optimizer(root);
  config.scheduler = bind_scheduler(root);
  top.read("gradient_clipping", config.gradient_clipping);
  top.read_choice("non_finite_gradients", config.non_finite_gradients,
                  {{"skip", NonFiniteGradients::kSkip}, {"stop", NonFiniteGradients::kStop}});
  config.precision = bind_precision(root);
  config.zero = bind_zero(root);
  config.reduction = bind_reduction(root);
  config.pipeline = bind_pipeline(root);
  top.read("tensor_parallel.size", config.tensor_parallel.size);
  top.read("tensor_parallel.sequence_parallel", config.tensor_parallel.sequence_parallel);
  config.communication = bind_communication(root);
  config.device = bind_device(root);
  top.read("checkpoint.keep_last", config.checkpoint.keep_last);
  top.read("checkpoint.timeout_seconds", config.checkpoint.timeout_seconds);
  top.read("checkpoint.async", config.checkpoint.async);
  top.read_choice("checkpoint.tag_validation", config.checkpoint.tag_validation,
                  {{"Ignore", TagValidation::kIgnore},
                   {"Warn", TagValidation::kWarn},
                   {"Fail", TagValidation::kFail}});
  top.read("frozen_parameters", config.frozen_parameters);
  bind_reports(root, config);
  top.read("dataloader_drop_last", config.dataloader_drop_last);
  top.read("dataloader_prefetch", config.dataloader_prefetch);
  top.read("threads_per_rank", config.threads_per_rank);
  if (const JsonValue* seed = top.find("seed")) {
    config.seed = static_cast<std::uint64_t>(*seed->as_int());
  }
  return config;
}

}  // namespace penstock::engine
