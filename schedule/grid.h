// The time grid of a pipe, for people: a row per rank, a column per step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "schedule/schedule.h"

namespace penstock::schedule {

// What a step computes: F, B, I, W (forward, backward, its input and its weight part) with the
// micro batch, such as "F0"; then "c1" for the chunk if a rank has several; "O" for the optimizer
// step; joined by "+" if there are several; "." if the step computes nothing.
std::string grid_cell(const Schedule& schedule, std::int64_t step);

// The grid of these schedules, which may differ in their number of steps; each column is as wide
// as its widest cell:
//
//   step    0  1  2  3
//   rank 0  F0 .  F1 B0
//   rank 1  .  F0 B0 F1
std::string to_grid(std::span<const std::unique_ptr<Schedule>> schedules);
// Only the steps [begin, end), as far as they exist.
std::string to_grid(std::span<const std::unique_ptr<Schedule>> schedules, std::int64_t begin,
                    std::int64_t end);

}  // namespace penstock::schedule
