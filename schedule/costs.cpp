#include "schedule/costs.h"

#include <cmath>
#include <string>

namespace penstock::schedule {
namespace {

void check_field(const std::string& field, double value) {
  if (value >= 0.0 && std::isfinite(value)) return;
  throw ScheduleError("[costs] " + field + " is " + std::to_string(value) +
                      "; expected a finite number, 0 or more");
}

}  // namespace

Costs uniform_costs(int stages, int chunks, double forward, double backward_input,
                    double backward_weight) {
  Costs costs;
  costs.stages.assign(static_cast<std::size_t>(stages),
                      {.forward = forward / chunks,
                       .backward_input = backward_input / chunks,
                       .backward_weight = backward_weight / chunks});
  check_costs(costs, stages);
  return costs;
}

void check_costs(const Costs& costs, int num_stages) {
  if (costs.stages.size() != static_cast<std::size_t>(num_stages)) {
    throw ScheduleError("[costs] there are costs of " + std::to_string(costs.stages.size()) +
                        " stages; expected one entry for each of the " +
                        std::to_string(num_stages) + " stages");
  }
  for (std::size_t i = 0; i < costs.stages.size(); ++i) {
    const StageCosts& stage = costs.stages[i];
    const std::string at = "stages[" + std::to_string(i) + "].";
    check_field(at + "forward", stage.forward);
    check_field(at + "backward_input", stage.backward_input);
    check_field(at + "backward_weight", stage.backward_weight);
    check_field(at + "activation_bytes", stage.activation_bytes);
    check_field(at + "message_bytes", stage.message_bytes);
  }
  check_field("latency", costs.latency);
  check_field("seconds_per_byte", costs.seconds_per_byte);
  check_field("optimizer_step", costs.optimizer_step);
}

}  // namespace penstock::schedule
