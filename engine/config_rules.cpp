#include "engine/config_rules.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/config_keys.h"
#include "engine/config_match.h"
#include "engine/config_suggest.h"
#include "schedule/registry.h"

namespace penstock::engine {

namespace {

bool is_true(const JsonValue* value) {
  return value != nullptr && value->get_if<bool>() != nullptr && *value->get_if<bool>();
}

// "half" is another name of "fp16".
std::string_view dtype_named(std::string_view name) {
  if (!match_choice("fp16|half|float16", name).empty()) return "fp16";
  return match_choice("bf16|bfloat16", name).empty() ? "fp32" : "bf16";
}

// What data_types says must fit the precision that is enabled.
void check_dtypes(const JsonValue& root, std::string_view enabled, Problems& problems) {
  const auto check = [&](const std::string& key, bool fp32_too) {
    const JsonValue* value = given(root, key);
    if (value == nullptr) return;
    const std::string_view dtype = dtype_named(*value->get_if<std::string>());
    if (dtype == enabled || (fp32_too && dtype == "fp32")) return;
    problems.add(value->line, key,
                 std::string(dtype) + ", but the weights are " + std::string(enabled) +
                     " (fp16.enabled, bf16.enabled); expected " +
                     (fp32_too && enabled != "fp32" ? "fp32 or " : "") + std::string(enabled));
  };
  check("data_types.param_dtype", /*fp32_too=*/false);
  check("data_types.grad_accum_dtype", /*fp32_too=*/true);
}

void check_loss_scale(const JsonValue& root, Problems& problems) {
  const JsonValue* least = given(root, "fp16.min_loss_scale");
  const JsonValue* power = given(root, "fp16.initial_scale_power");
  const double first = std::ldexp(1.0, power != nullptr ? static_cast<int>(*power->as_int()) : 16);
  if (least == nullptr || *least->as_number() <= first) return;
  problems.add(least->line, "fp16.min_loss_scale",
               "is above the scale that a run begins with, 2 to the power of "
               "fp16.initial_scale_power; expected at most that");
}

void check_zero(const JsonValue& root, Problems& problems) {
  const JsonValue* each = given(root, "zero_optimization.reduce_each_micro_batch");
  const JsonValue* stage = given(root, "zero_optimization.stage");
  if (stage != nullptr && stage->as_int() == 3) {
    problems.add(stage->line, "zero_optimization.stage",
                 "3 shares out the weights, which a pipeline would have to gather for every micro "
                 "batch; expected 0, 1 or 2");
    return;
  }
  if (!is_true(each) || (stage != nullptr && stage->as_int() == 2)) return;
  problems.add(each->line, "zero_optimization.reduce_each_micro_batch",
               "true, but zero_optimization.stage is " +
                   std::to_string(stage != nullptr ? *stage->as_int() : 0) +
                   "; expected stage 2, whose gradients are shared out");
}

void check_precision(const JsonValue& root, Problems& problems) {
  const JsonValue* bf16 = given(root, "bf16");
  const JsonValue* bfloat16 = given(root, "bfloat16");
  if (bf16 != nullptr && bfloat16 != nullptr) {
    problems.add(bfloat16->line, "bfloat16",
                 "another name of bf16, which is given too; keep one of bf16 and bfloat16");
  }
  const JsonValue* fp16_on = given(root, "fp16.enabled");
  const std::string bf16_key = bf16 != nullptr ? "bf16.enabled" : "bfloat16.enabled";
  if (is_true(fp16_on) && is_true(given(root, bf16_key))) {
    problems.add(fp16_on->line, "fp16.enabled",
                 "true, and so is " + bf16_key + "; at most one of fp16 and bf16 can be enabled");
    return;
  }
  const bool bf16_on = is_true(given(root, bf16_key));
  check_dtypes(root, is_true(fp16_on) ? "fp16" : bf16_on ? "bf16" : "fp32", problems);
}

// Of optimizer.params, and of each group, which takes from there what it leaves out.
void check_nesterov(const JsonValue& root, Problems& problems) {
  const JsonValue* nesterov = given(root, "optimizer.params.nesterov");
  if (!is_true(nesterov)) return;
  const auto number = [&root](const JsonValue* own, const std::string& key) {
    const JsonValue* value = own != nullptr ? own->find(key) : nullptr;
    if (value == nullptr) value = given(root, "optimizer.params." + key);
    return value == nullptr ? 0.0 : *value->as_number();
  };
  const auto check = [&](const JsonValue* own, const std::string& where) {
    if (number(own, "momentum") > 0.0 && number(own, "dampening") == 0.0) return;
    problems.add(nesterov->line, "optimizer.params.nesterov",
                 "true needs a momentum above 0 and a dampening of 0 in " + where);
  };
  check(nullptr, "optimizer.params");
  const JsonValue* groups = given(root, "optimizer.groups");
  if (groups == nullptr) return;
  const auto& items = *groups->get_if<JsonValue::Array>();
  for (std::size_t i = 0; i < items.size(); ++i) {
    check(&items[i], "optimizer.groups[" + std::to_string(i) + "]");
  }
}

void check_optimizer(const JsonValue& root, Problems& problems) {
  const JsonValue* most = given(root, "optimizer.params.max_coeff");
  const JsonValue* least = given(root, "optimizer.params.min_coeff");
  if (most != nullptr || least != nullptr) {
    const double high = most != nullptr ? *most->as_number() : 10.0;
    const double low = least != nullptr ? *least->as_number() : 0.01;
    if (low > high) {
      problems.add((least != nullptr ? least : most)->line, "optimizer.params.min_coeff",
                   "is above max_coeff; expected at most that");
    }
  }
  check_nesterov(root, problems);
  const JsonValue* type = given(root, "optimizer.type");
  const JsonValue* mode = given(root, "optimizer.params.adam_w_mode");
  if (type != nullptr && mode != nullptr && !is_true(mode) &&
      match_choice("AdamW", *type->get_if<std::string>()) == "AdamW") {
    problems.add(mode->line, "optimizer.params.adam_w_mode",
                 "false contradicts optimizer.type AdamW; use Adam for decay in the gradient");
  }
  const JsonValue* scheduler = given(root, "scheduler");
  if (scheduler != nullptr && type == nullptr) {
    problems.add(scheduler->line, "scheduler", "needs an optimizer section, which is not given");
  }
}

void check_scheduler(const JsonValue& root, Problems& problems) {
  const JsonValue* params = given(root, "scheduler.params");
  if (params == nullptr) return;
  const JsonValue* groups = given(root, "optimizer.groups");
  const auto* listed = groups ? groups->get_if<JsonValue::Array>() : nullptr;
  const std::size_t count = listed && !listed->empty() ? listed->size() + 1 : 1;
  for (const auto& [name, value] : *params->get_if<JsonValue::Object>()) {
    const auto* list = value.get_if<JsonValue::Array>();
    if (list == nullptr || list->size() == count) continue;
    problems.add(value.line, "scheduler.params." + name,
                 "expected one value per parameter group (" + std::to_string(count) +
                     ": each of optimizer.groups, and all other parameters), got " +
                     std::to_string(list->size()));
  }
  const JsonValue* total = given(root, "scheduler.params.total_num_steps");
  const JsonValue* warmup = given(root, "scheduler.params.warmup_num_steps");
  const std::int64_t warmup_steps = warmup != nullptr ? *warmup->as_int() : 1000;
  if (total != nullptr && *total->as_int() < warmup_steps) {
    problems.add(total->line, "scheduler.params.total_num_steps",
                 std::to_string(*total->as_int()) + " is less than warmup_num_steps " +
                     std::to_string(warmup_steps) + (warmup ? "" : " (its default)") +
                     "; the warm-up is part of the total");
  }
}

void check_partition(const JsonValue& root, Problems& problems) {
  const JsonValue* partition = given(root, "pipeline.partition");
  if (partition == nullptr) return;
  const std::string& text = *partition->get_if<std::string>();
  constexpr std::string_view kType = "type:";
  const std::string_view word = std::string_view(text).substr(0, kType.size());
  const bool by_type = !match_choice(kType, word).empty();
  std::string fact;
  if (by_type) {
    const auto pattern = std::string_view(text).substr(kType.size());
    const auto fault = regex_fault(pattern);
    if (pattern.empty()) fact = "expected a regular expression after \"type:\"";
    if (fault) fact = "\"" + json_escaped(pattern) + "\" is " + *fault;
  } else if (!match_choice("profile", text).empty()) {
    fact = "\"profile\" is not available in this version; use pipeline.bounds";
  } else if (match_choice("best|uniform|parameters", text).empty()) {
    fact = "expected best, uniform, parameters or type:REGEX, got \"" + json_escaped(text) + "\"";
  }
  if (!fact.empty()) problems.add(partition->line, "pipeline.partition", fact);
}

// The number of stages that the document asks for, and the keys that say so.
struct StageCount {
  std::int64_t stages = 1;
  std::string origin;
};

// The stages of each rank where pipeline.chunks is left out.
std::int64_t chunks_of_schedule(const JsonValue& root) {
  const JsonValue* name = given(root, "pipeline.schedule");
  if (name == nullptr) return 1;
  for (const schedule::ScheduleInfo& info : schedule::registered_schedules()) {
    if (!match_choice(info.name, *name->get_if<std::string>()).empty()) {
      return std::max(1, info.chunks);
    }
  }
  return 1;
}

StageCount count_stages(const JsonValue& root) {
  const JsonValue* map = given(root, "pipeline.stage_map");
  if (const auto* owners = map != nullptr ? map->get_if<JsonValue::Array>() : nullptr) {
    return {std::ssize(*owners), "pipeline.stage_map has " + std::to_string(owners->size())};
  }
  const JsonValue* ranks = given(root, "pipeline.stages");
  const JsonValue* chunks = given(root, "pipeline.chunks");
  const std::int64_t count = ranks != nullptr ? *ranks->as_int() : 1;
  const std::int64_t each = chunks != nullptr ? *chunks->as_int() : chunks_of_schedule(root);
  std::string origin = "pipeline.stages is " + std::to_string(count);
  if (ranks == nullptr) origin += " (its default)";
  if (chunks != nullptr || each != 1) {
    origin += " and pipeline.chunks is " + std::to_string(each);
    if (chunks == nullptr) origin += " (what the schedule is made for)";
  }
  return {count * each, origin};
}

// Whether a table from a file is asked for, which says itself how many stages there are.
bool is_file(std::string_view schedule) {
  constexpr std::size_t kPrefix = 5;
  const std::string_view prefix = schedule.substr(0, kPrefix);
  return schedule.size() > kPrefix &&
         (!match_choice("file:", prefix).empty() || !match_choice("auto:", prefix).empty());
}

// What only the search for a schedule looks at.
void check_search_keys(const JsonValue& root, Problems& problems) {
  const JsonValue* schedule = given(root, "pipeline.schedule");
  if (schedule != nullptr && !match_choice("auto", *schedule->get_if<std::string>()).empty())
    return;
  for (const char* key : {"pipeline.cost_file", "pipeline.memory_limit"}) {
    const JsonValue* value = given(root, key);
    if (value == nullptr) continue;
    problems.add(value->line, key,
                 "has a meaning only with pipeline.schedule \"auto\"; remove it, or set that");
  }
}

void check_bounds(const JsonValue& root, Problems& problems) {
  const JsonValue* bounds = given(root, "pipeline.bounds");
  if (bounds == nullptr) return;
  const auto& cuts = *bounds->get_if<JsonValue::Array>();
  bool rising = cuts.size() >= 2 && *cuts.front().as_int() == 0;
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    rising = rising && *cuts[i].as_int() > *cuts[i - 1].as_int();
  }
  const auto add = [&](const std::string& fact) {
    problems.add(bounds->line, "pipeline.bounds", fact);
  };
  if (!rising || *cuts.back().as_int() > 1'000'000) {
    add("expected rising layer numbers that begin with 0, such as [0, 3, 6], got " +
        canonical_json(*bounds));
    return;
  }
  const JsonValue* schedule = given(root, "pipeline.schedule");
  const StageCount wanted = count_stages(root);
  if (std::ssize(cuts) != wanted.stages + 1 &&
      (schedule == nullptr || !is_file(*schedule->get_if<std::string>()))) {
    add(canonical_json(*bounds) + " makes " + std::to_string(cuts.size() - 1) + " stages, but " +
        wanted.origin);
  }
  const JsonValue* partition = given(root, "pipeline.partition");
  if (partition != nullptr && match_choice("best", *partition->get_if<std::string>()).empty()) {
    add("given together with pipeline.partition \"" +
        json_escaped(*partition->get_if<std::string>()) + "\"; keep one of them");
  }
}

// A list of owners: as many ranks as pipeline.stages says, each with a stage.
void check_stage_map(const JsonValue& root, Problems& problems) {
  const JsonValue* map = given(root, "pipeline.stage_map");
  const auto* owners = map != nullptr ? map->get_if<JsonValue::Array>() : nullptr;
  if (owners == nullptr) return;
  const JsonValue* stages = given(root, "pipeline.stages");
  const std::int64_t ranks = stages != nullptr ? *stages->as_int() : 1;
  std::set<std::int64_t> named;
  for (const JsonValue& owner : *owners) named.insert(*owner.as_int());
  if (named.empty() || std::ssize(named) != ranks || *named.begin() != 0 ||
      *named.rbegin() != ranks - 1) {
    problems.add(map->line, "pipeline.stage_map",
                 "expected the owner of each stage, with every rank from 0 to " +
                     std::to_string(ranks - 1) + " (pipeline.stages is " + std::to_string(ranks) +
                     (stages != nullptr ? "" : ", its default") + "), got " + canonical_json(*map));
  }
  if (const JsonValue* chunks = given(root, "pipeline.chunks")) {
    problems.add(chunks->line, "pipeline.chunks",
                 canonical_json(*chunks) +
                     " is given together with a list of owners in pipeline.stage_map, which says "
                     "how many stages each rank has; keep one of them");
  }
}

void check_schedule(const JsonValue& root, Problems& problems) {
  const JsonValue* schedule = given(root, "pipeline.schedule");
  if (schedule == nullptr) return;
  const std::string& word = *schedule->get_if<std::string>();
  if (is_file(word) || !match_choice("auto", word).empty()) return;
  std::string names;
  std::vector<std::string_view> trains;
  for (const schedule::ScheduleInfo& info : schedule::registered_schedules()) {
    if (!info.trains) continue;
    if (!match_choice(info.name, word).empty()) return;
    trains.push_back(info.name);
    names += (names.empty() ? "" : "|") + std::string(info.name);
  }
  names += "|auto|auto:PATH|file:PATH";
  std::string fact = "expected " + choices_text(names) + ", got \"" + json_escaped(word) + "\"";
  if (const auto near = nearest(word, trains); !near.empty()) {
    fact += "; did you mean " + std::string(near) + "?";
  }
  problems.add(schedule->line, "pipeline.schedule", fact);
}

// What passes must not do while a graph is captured.
void check_graphs(const JsonValue& root, Problems& problems) {
  const JsonValue* graphs = given(root, "device.graphs");
  if (!is_true(graphs)) return;
  const JsonValue* size = given(root, "tensor_parallel.size");
  if (size != nullptr && *size->as_int() > 1) {
    problems.add(graphs->line, "device.graphs",
                 "true, but tensor_parallel.size is " + std::to_string(*size->as_int()) +
                     ", so that ranks communicate inside of passes, which no graph can hold; "
                     "expected size 1");
  }
  const JsonValue* stage = given(root, "zero_optimization.stage");
  if (stage != nullptr && stage->as_int() == 2) {
    problems.add(graphs->line, "device.graphs",
                 "true, but zero_optimization.stage is 2, which gives the memory of gradients back "
                 "after use, and graphs need it to stay; expected stage 0 or 1");
  }
}

// What is said of devices has a meaning only where ranks compute on some.
void check_device(const JsonValue& root, Problems& problems) {
  const JsonValue* type = given(root, "device.type");
  if (type != nullptr && !match_choice("cuda", *type->get_if<std::string>()).empty()) return;
  const auto refuse = [&](const JsonValue* value, const std::string& key) {
    problems.add(value->line, key,
                 canonical_json(*value) + ", but device.type is \"cpu\"" +
                     (type == nullptr ? ", its default" : "") + "; remove it, or set \"cuda\"");
  };
  for (const char* key : {"device.sharing", "device.tf32", "device.graphs"}) {
    if (const JsonValue* value = given(root, key); is_true(value)) refuse(value, key);
  }
  const JsonValue* transport = given(root, "device.transport");
  if (transport != nullptr && match_choice("auto", *transport->get_if<std::string>()).empty()) {
    refuse(transport, "device.transport");
  }
}

}  // namespace

const JsonValue* given(const JsonValue& root, std::string_view path) {
  const JsonValue* value = &root;
  for (std::string_view rest = path; value != nullptr && !rest.empty();) {
    const auto dot = rest.find('.');
    value = value->find(rest.substr(0, dot));
    rest.remove_prefix(dot == std::string_view::npos ? rest.size() : dot + 1);
  }
  if (value == nullptr || value->is_null()) return nullptr;
  const auto* text = value->get_if<std::string>();
  if (text == nullptr || *text != "auto") return value;
  const KeyRow* row = find_key(canonical_path(path), {});
  return row != nullptr && (row->type & kAuto) ? nullptr : value;
}

void find_contradictions(const JsonValue& root, Problems& problems) {
  check_precision(root, problems);
  check_zero(root, problems);
  check_loss_scale(root, problems);
  check_optimizer(root, problems);
  check_scheduler(root, problems);
  check_partition(root, problems);
  check_bounds(root, problems);
  check_stage_map(root, problems);
  check_search_keys(root, problems);
  check_schedule(root, problems);
  check_device(root, problems);
  check_graphs(root, problems);
}

}  // namespace penstock::engine
