#include "schedule/io/time_grid_json.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "schedule/io/json_reader.h"

namespace penstock::schedule {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

Json to_value(const TimeGridCell& cell) {
  Json microbatch;  // null when idle
  if (cell.op != TimeGridOp::kIdle) microbatch = cell.microbatch.value;
  return {{"stage", cell.stage.value},
          {"time", cell.time},
          {"op", name(cell.op)},
          {"microbatch", microbatch}};
}

void require_equal(const JsonField& field, const Json& expected) {
  if (field.value() != expected) field.fail(described(expected));
}

void check_cell(const JsonField& field, const TimeGridCell& cell) {
  const Json expected = to_value(cell);
  JsonObject object(field);
  for (const auto& [key, value] : expected.items()) require_equal(object.take(key), value);
  object.done();
}

// Before a grid is made: so no short text makes a large one.
void check_sizes(const JsonField& steps, int num_stages, std::int64_t total_steps) {
  if (steps.array_size() != static_cast<std::size_t>(num_stages)) {
    steps.fail(std::to_string(num_stages) + " arrays, one for each of num_stages");
  }
  for (std::size_t stage = 0; stage < steps.array_size(); ++stage) {
    if (steps[stage].array_size() == static_cast<std::size_t>(total_steps)) continue;
    steps[stage].fail(std::to_string(total_steps) + " cells, one for each of total_steps");
  }
}

TimeGridKind read_kind(const JsonField& field) {
  for (const auto kind : {TimeGridKind::kGPipe, TimeGridKind::kOneForwardOneBackward}) {
    if (field.string() == name(kind)) return kind;
  }
  field.fail("\"GPipe\" or \"OneForwardOneBackward\"");
}

int read_count(const JsonField& field) {
  return static_cast<int>(field.integer(1, kLargest));
}

}  // namespace

std::string to_json(const TimeGrid& grid) {
  Json rows = Json::array();
  for (int stage = 0; stage < grid.num_stages(); ++stage) {
    Json row = Json::array();
    for (const TimeGridCell& cell : grid.steps(StageId{stage})) row.push_back(to_value(cell));
    rows.push_back(std::move(row));
  }
  return Json{{"kind", name(grid.kind())},
              {"num_stages", grid.num_stages()},
              {"num_microbatches", grid.num_microbatches()},
              {"total_steps", grid.total_steps()},
              {"bubble_steps", grid.bubble_steps()},
              {"bubble_ratio", grid.bubble_ratio()},
              {"steps", std::move(rows)}}
      .dump();
}

std::string to_json(const StageAssignment& assignment) {
  Json stages = Json::array();
  for (const StageId stage : assignment.assignments()) stages.push_back(stage.value);
  return Json{{"assignments", std::move(stages)}, {"num_stages", assignment.num_stages()}}.dump();
}

TimeGrid time_grid_from_json(std::string_view text, std::string_view origin) {
  const Json document = parse_json(text, origin);
  JsonObject object({document, std::string(origin) + ':'});
  const TimeGridKind kind = read_kind(object.take("kind"));
  const int num_stages = read_count(object.take("num_stages"));
  const int num_microbatches = read_count(object.take("num_microbatches"));
  const std::int64_t total_steps = 2 * (std::int64_t{num_stages} + num_microbatches - 1);
  require_equal(object.take("total_steps"), total_steps);
  const JsonField steps = object.take("steps");
  check_sizes(steps, num_stages, total_steps);
  const TimeGrid grid(kind, num_stages, num_microbatches);
  require_equal(object.take("bubble_steps"), grid.bubble_steps());
  require_equal(object.take("bubble_ratio"), grid.bubble_ratio());
  object.done();
  for (std::size_t stage = 0; stage < steps.array_size(); ++stage) {
    std::size_t time = 0;
    for (const TimeGridCell& cell : grid.steps(StageId{static_cast<std::int32_t>(stage)})) {
      check_cell(steps[stage][time++], cell);
    }
  }
  return grid;
}

StageAssignment stage_assignment_from_json(std::string_view text, std::string_view origin) {
  const Json document = parse_json(text, origin);
  JsonObject object({document, std::string(origin) + ':'});
  const int num_stages = read_count(object.take("num_stages"));
  const JsonField stages = object.take("assignments");
  std::vector<StageId> assignments;
  for (std::size_t layer = 0; layer < stages.array_size(); ++layer) {
    assignments.emplace_back(static_cast<std::int32_t>(stages[layer].integer(0, kLargest)));
  }
  object.done();
  return {std::move(assignments), num_stages};
}

}  // namespace penstock::schedule
