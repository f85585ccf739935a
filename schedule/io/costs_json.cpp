#include "schedule/io/costs_json.h"

#include <array>
#include <utility>

#include "schedule/io/json_reader.h"

namespace penstock::schedule {
namespace {

using StageField = std::pair<const char*, double StageCosts::*>;
constexpr std::array kStageFields = {
    StageField{"forward", &StageCosts::forward},
    StageField{"backward_input", &StageCosts::backward_input},
    StageField{"backward_weight", &StageCosts::backward_weight},
    StageField{"activation_bytes", &StageCosts::activation_bytes},
    StageField{"message_bytes", &StageCosts::message_bytes},
};

using Field = std::pair<const char*, double Costs::*>;
constexpr std::array kFields = {
    Field{"latency", &Costs::latency},
    Field{"seconds_per_byte", &Costs::seconds_per_byte},
    Field{"optimizer_step", &Costs::optimizer_step},
};

}  // namespace

std::string to_json(const Costs& costs) {
  std::string out = "{\"stages\": [";
  for (const StageCosts& stage : costs.stages) {
    Json object;
    for (const auto& [name, member] : kStageFields) object[name] = stage.*member;
    out += (&stage == costs.stages.data() ? "\n  " : ",\n  ") + object.dump();
  }
  out += "\n]";
  for (const auto& [name, member] : kFields) {
    out += ",\n\"" + std::string(name) + "\": " + Json(costs.*member).dump();
  }
  return out + ",\n\"overlap\": " + (costs.overlap ? "true" : "false") + "\n}\n";
}

Costs costs_from_json(std::string_view text, std::string_view origin) {
  const Json document = parse_json(text, origin);
  JsonObject object({document, std::string(origin) + ':'});
  Costs costs;
  const JsonField stages = object.take("stages");
  if (stages.array_size() == 0) stages.fail("the costs of at least one stage");
  for (std::size_t i = 0; i < stages.array_size(); ++i) {
    JsonObject stage(stages[i]);
    StageCosts& to = costs.stages.emplace_back();
    for (const auto& [name, member] : kStageFields) to.*member = stage.take(name).number(0.0);
    stage.done();
  }
  for (const auto& [name, member] : kFields) {
    if (object.offers(name)) costs.*member = object.take(name).number(0.0);
  }
  if (object.offers("overlap")) costs.overlap = object.take("overlap").boolean();
  object.done();
  return costs;
}

}  // namespace penstock::schedule
