// The time grid of the two textbook schedules, one stage per rank, every pass one unit of time and
// transfers free: for lessons and for tools that want cells and no streams. The interface is the
// one of the pipeline schedules of Rust's fuel_parallel. Instruction streams are made by
// registry.h, real costs are simulate.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/error.h"
#include "schedule/ids.h"

namespace penstock::schedule {

enum class TimeGridKind : std::uint8_t {
  kGPipe,                  // all forwards, then all backwards
  kOneForwardOneBackward,  // S - s forwards on stage s, then backward and forward in turn
};

enum class TimeGridOp : std::uint8_t { kForward, kBackward, kIdle };

// "GPipe", "OneForwardOneBackward"; "Forward", "Backward", "Idle".
std::string_view name(TimeGridKind kind);
std::string_view name(TimeGridOp op);

struct TimeGridCell {
  StageId stage;
  int time = 0;
  TimeGridOp op = TimeGridOp::kIdle;
  MicroBatchId microbatch;  // none when idle

  friend constexpr bool operator==(const TimeGridCell&, const TimeGridCell&) = default;
};

// For S stages and M micro batches both kinds take 2(S + M - 1) steps, of which 2S(S - 1) cells are
// idle, so that the bubble ratio is (S - 1)/(S + M - 1). Causal: a forward comes after the one of
// the stage before, a backward after the one of the stage behind, and after its own forward.
class TimeGrid {
 public:
  TimeGrid() = default;  // no stages, no steps
  // ScheduleError unless there is at least one stage and one micro batch, or when the grid would
  // have more than kMostCells cells.
  TimeGrid(TimeGridKind kind, int num_stages, int num_microbatches);

  static constexpr std::int64_t kMostCells = 10'000'000;

  TimeGridKind kind() const { return kind_; }
  int num_stages() const { return num_stages_; }
  int num_microbatches() const { return num_microbatches_; }
  int total_steps() const { return total_steps_; }

  // A stage's cells, one for each time from 0 on. ScheduleError for a stage that is not there.
  std::span<const TimeGridCell> steps(StageId stage) const;
  // The cells of all stages at a time, in stage order; empty past the end, or before 0.
  std::vector<TimeGridCell> at_time(int time) const;

  // Idle cells, and their share of all cells: 0 when there are none.
  std::int64_t bubble_steps() const;
  double bubble_ratio() const;

  friend bool operator==(const TimeGrid&, const TimeGrid&) = default;

 private:
  TimeGridKind kind_ = TimeGridKind::kGPipe;
  int num_stages_ = 0;
  int num_microbatches_ = 0;
  int total_steps_ = 0;
  std::vector<TimeGridCell> cells_;  // stage by stage
};

// Which layers belong to which stage, stages being runs of consecutive layers.
class StageAssignment {
 public:
  // As even as can be: the first `num_layers` mod `num_stages` stages get one layer more than the
  // others. ScheduleError when a stage would get none.
  static StageAssignment uniform(int num_layers, int num_stages);
  // assignments[l] is the stage of layer l. ScheduleError unless stages 0 to num_stages - 1 follow
  // one another, each with at least one layer.
  StageAssignment(std::vector<StageId> assignments, int num_stages);

  int num_stages() const { return num_stages_; }
  std::span<const StageId> assignments() const { return assignments_; }
  // None for a layer that is not there.
  StageId stage_of(int layer) const;
  // Ascending; empty for a stage that is not there.
  std::vector<int> layers_in_stage(StageId stage) const;
  std::vector<int> layers_per_stage() const;

  friend bool operator==(const StageAssignment&, const StageAssignment&) = default;

 private:
  std::vector<StageId> assignments_;
  int num_stages_;
};

}  // namespace penstock::schedule
