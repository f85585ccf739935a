#include "schedule/time_grid.h"

#include <algorithm>
#include <string>
#include <utility>

namespace penstock::schedule {
namespace {

void require_positive(const char* what, int value) {
  if (value >= 1) return;
  throw ScheduleError("[schedule::time_grid] " + std::string(what) + " is " +
                      std::to_string(value) + "; expected 1 or more");
}

struct Times {
  int forward;
  int backward;
};

Times times_of(TimeGridKind kind, int num_stages, int num_microbatches, int stage, int microbatch) {
  const int behind = num_stages - 1 - stage;  // stages that the micro batch has yet to go through
  if (kind == TimeGridKind::kGPipe) {
    const int forwards_end = num_stages + num_microbatches - 1;
    return {stage + microbatch, forwards_end + behind + microbatch};
  }
  // The first forwards follow one another; from then on forwards and backwards take turns.
  const bool warm_up = microbatch <= behind;
  return {stage + (warm_up ? microbatch : 2 * microbatch), num_stages + behind + 2 * microbatch};
}

}  // namespace

std::string_view name(TimeGridKind kind) {
  return kind == TimeGridKind::kGPipe ? "GPipe" : "OneForwardOneBackward";
}

std::string_view name(TimeGridOp op) {
  switch (op) {
    case TimeGridOp::kForward:
      return "Forward";
    case TimeGridOp::kBackward:
      return "Backward";
    case TimeGridOp::kIdle:
      return "Idle";
  }
  return "";
}

TimeGrid::TimeGrid(TimeGridKind kind, int num_stages, int num_microbatches)
    : kind_(kind), num_stages_(num_stages), num_microbatches_(num_microbatches) {
  require_positive("num_stages", num_stages);
  require_positive("num_microbatches", num_microbatches);
  const std::int64_t steps = 2 * (std::int64_t{num_stages} + num_microbatches - 1);
  if (steps > kMostCells / num_stages) {
    throw ScheduleError("[schedule::time_grid] num_stages " + std::to_string(num_stages) +
                        " and num_microbatches " + std::to_string(num_microbatches) +
                        " make a grid of " + std::to_string(steps) + " steps; expected at most " +
                        std::to_string(kMostCells) + " cells (stages × steps)");
  }
  total_steps_ = static_cast<int>(steps);
  cells_.reserve(static_cast<std::size_t>(steps * num_stages));
  for (int stage = 0; stage < num_stages; ++stage) {
    const auto row = static_cast<std::ptrdiff_t>(cells_.size());
    for (int time = 0; time < total_steps_; ++time) {
      cells_.push_back({StageId{stage}, time, TimeGridOp::kIdle, {}});
    }
    for (int m = 0; m < num_microbatches; ++m) {
      const Times times = times_of(kind, num_stages, num_microbatches, stage, m);
      const auto set = [&](int time, TimeGridOp op) {
        TimeGridCell& cell = *(cells_.begin() + row + time);
        cell.op = op;
        cell.microbatch = MicroBatchId{m};
      };
      set(times.forward, TimeGridOp::kForward);
      set(times.backward, TimeGridOp::kBackward);
    }
  }
}

std::span<const TimeGridCell> TimeGrid::steps(StageId stage) const {
  if (stage.value < 0 || stage.value >= num_stages_) {
    throw ScheduleError("[schedule::time_grid] stage " + std::to_string(stage.value) +
                        " does not exist; expected 0 to " + std::to_string(num_stages_ - 1));
  }
  const auto length = static_cast<std::size_t>(total_steps_);
  return std::span(cells_).subspan(static_cast<std::size_t>(stage.value) * length, length);
}

std::vector<TimeGridCell> TimeGrid::at_time(int time) const {
  std::vector<TimeGridCell> column;
  if (time < 0 || time >= total_steps_) return column;
  for (int stage = 0; stage < num_stages_; ++stage) {
    column.push_back(steps(StageId{stage})[static_cast<std::size_t>(time)]);
  }
  return column;
}

std::int64_t TimeGrid::bubble_steps() const {
  return std::ranges::count(cells_, TimeGridOp::kIdle, &TimeGridCell::op);
}

double TimeGrid::bubble_ratio() const {
  if (cells_.empty()) return 0.0;
  return static_cast<double>(bubble_steps()) / static_cast<double>(cells_.size());
}

StageAssignment StageAssignment::uniform(int num_layers, int num_stages) {
  require_positive("num_stages", num_stages);
  if (num_layers < num_stages) {
    throw ScheduleError("[schedule::time_grid] " + std::to_string(num_layers) +
                        " layers cannot fill " + std::to_string(num_stages) +
                        " stages; expected at least one layer for each stage");
  }
  const int fewest = num_layers / num_stages;
  const int with_one_more = num_layers % num_stages;
  std::vector<StageId> assignments;
  for (int stage = 0; stage < num_stages; ++stage) {
    const int layers = fewest + (stage < with_one_more ? 1 : 0);
    assignments.insert(assignments.end(), static_cast<std::size_t>(layers), StageId{stage});
  }
  return {std::move(assignments), num_stages};
}

StageAssignment::StageAssignment(std::vector<StageId> assignments, int num_stages)
    : assignments_(std::move(assignments)), num_stages_(num_stages) {
  require_positive("num_stages", num_stages);
  int last = -1;
  for (std::size_t layer = 0; layer < assignments_.size(); ++layer) {
    const int stage = assignments_[layer].value;
    const bool follows = (stage == last && last >= 0) || stage == last + 1;
    if (!follows || stage >= num_stages) {
      throw ScheduleError("[schedule::time_grid] assignments[" + std::to_string(layer) + "] is " +
                          std::to_string(stage) + "; expected stages 0 to " +
                          std::to_string(num_stages - 1) +
                          " (num_stages - 1) in this order, each with at least one layer");
    }
    last = stage;
  }
  if (last != num_stages - 1) {
    throw ScheduleError("[schedule::time_grid] assignments end with stage " + std::to_string(last) +
                        "; expected a layer for each of num_stages " + std::to_string(num_stages));
  }
}

StageId StageAssignment::stage_of(int layer) const {
  const bool exists = layer >= 0 && static_cast<std::size_t>(layer) < assignments_.size();
  return exists ? assignments_[static_cast<std::size_t>(layer)] : StageId{};
}

std::vector<int> StageAssignment::layers_in_stage(StageId stage) const {
  const auto [first, last] = std::ranges::equal_range(assignments_, stage);
  std::vector<int> layers;
  for (auto it = first; it != last; ++it) {
    layers.push_back(static_cast<int>(it - assignments_.begin()));
  }
  return layers;
}

std::vector<int> StageAssignment::layers_per_stage() const {
  std::vector<int> counts(static_cast<std::size_t>(num_stages_));
  for (const StageId stage : assignments_) ++counts[static_cast<std::size_t>(stage.value)];
  return counts;
}

}  // namespace penstock::schedule
