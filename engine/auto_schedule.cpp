#include "engine/auto_schedule.h"

#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/config_error.h"
#include "engine/config_file.h"
#include "schedule/csv.h"
#include "schedule/io/costs_json.h"
#include "schedule/search.h"

namespace penstock::engine {

namespace {

using nlohmann::json;
using schedule::StageMap;

FoundSchedule search(const PipelineConfig& pipeline, const StageMap& map, int micro_batches,
                     const schedule::Costs& costs) {
  schedule::SearchRequest request{.maps = {map}, .micro_batches = micro_batches, .costs = costs};
  if (pipeline.memory_limit) {
    request.limit.bytes.assign(static_cast<std::size_t>(map.num_ranks()), *pipeline.memory_limit);
  }
  const schedule::SearchResult result = schedule::search(request);
  return {.table = schedule::to_csv(result.table),
          .costs = schedule::to_json(costs),
          .name = result.best().name,
          .makespan = result.best().makespan};
}

}  // namespace

bool is_auto(const PipelineConfig& pipeline) {
  return pipeline.schedule == "auto";
}

StageMap auto_map(const PipelineConfig& pipeline) {
  if (!pipeline.stage_owners.empty()) {
    return StageMap(
        std::vector<std::int32_t>(pipeline.stage_owners.begin(), pipeline.stage_owners.end()));
  }
  const int chunks = pipeline.chunks.value_or(1);
  return pipeline.stage_map == "v" ? StageMap::v(pipeline.stages, chunks)
                                   : StageMap::loop(pipeline.stages, chunks);
}

std::string_view probing_schedule(const StageMap& map) {
  const int ranks = map.num_ranks();
  if (map == StageMap::loop(ranks, 1)) return "zb_h1";
  if (map.num_stages() % ranks == 0 && map == StageMap::loop(ranks, map.num_stages() / ranks)) {
    return "zb1p";
  }
  if (map == StageMap::v(ranks, 2)) return "zbv";
  return "gpipe";
}

schedule::Costs rounded(schedule::Costs costs) {
  const auto round = [](double& value) {
    constexpr double kStep = 1.01;
    if (value > 0.0) value = std::pow(kStep, std::round(std::log(value) / std::log(kStep)));
  };
  for (schedule::StageCosts& stage : costs.stages) {
    round(stage.forward);
    round(stage.backward_input);
    round(stage.backward_weight);
  }
  round(costs.latency);
  round(costs.seconds_per_byte);
  return costs;
}

FoundSchedule search_with_file(const PipelineConfig& pipeline, int micro_batches) {
  const std::string text = read_config_file(
      pipeline.cost_file, "pipeline.cost_file: ", "costs as JSON, such as costs.json of a run");
  return search(pipeline, auto_map(pipeline), micro_batches,
                schedule::costs_from_json(text, pipeline.cost_file));
}

FoundSchedule search_together(comm::World& world, const PipelineConfig& pipeline,
                              const StageMap& map, int micro_batches,
                              const schedule::Costs& costs) {
  json message;
  if (world.rank() == 0) {
    try {
      const FoundSchedule found = search(pipeline, map, micro_batches, costs);
      message = {{"table", found.table},
                 {"costs", found.costs},
                 {"name", found.name},
                 {"makespan", found.makespan}};
    } catch (const std::exception& error) {
      message = {{"error", error.what()}};
    }
  }
  const std::string text = world.all().all_gather_text(message.dump()).front();
  const json answer = json::parse(text);
  if (answer.contains("error")) {
    throw ConfigError("pipeline.schedule \"auto\": " + answer["error"].get<std::string>());
  }
  return {.table = answer["table"],
          .costs = answer["costs"],
          .name = answer["name"],
          .makespan = answer["makespan"]};
}

}  // namespace penstock::engine
