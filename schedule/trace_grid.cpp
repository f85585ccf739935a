#include "schedule/trace_grid.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "schedule/pipe_check.h"

namespace penstock::schedule {
namespace {

using Cells = std::vector<std::string>;

bool is_split(const Instruction& instruction) {
  return instruction.opcode == Opcode::kBackwardInput ||
         instruction.opcode == Opcode::kBackwardWeight;
}

bool splits_backward(const Schedule& schedule) {
  return std::ranges::any_of(steps(schedule),
                             [](const Step& step) { return std::ranges::any_of(step, is_split); });
}

std::size_t column_of(double time, const TraceSpan& span) {
  const double column = std::round(time);
  if (std::abs(time - column) > 1e-6) {
    throw ScheduleError("[schedule::grid] " + std::string(name(span.instruction.opcode)) +
                        " begins or ends at " + std::to_string(time) +
                        "; expected whole units of time");
  }
  return static_cast<std::size_t>(column);
}

std::string cell_of(const Instruction& instruction, bool names_chunks) {
  std::string cell(1, letter_of(instruction.opcode));
  if (instruction.micro_batch == MicroBatchId{}) return cell;
  cell += std::to_string(instruction.micro_batch.value);
  if (names_chunks) cell += 'c' + std::to_string(instruction.chunk.value);
  return cell;
}

bool has_chunks(const TraceRank& rank) {
  return std::ranges::any_of(
      rank.spans, [](const TraceSpan& span) { return span.instruction.chunk > ChunkId{0}; });
}

Cells cells_of(const TraceRank& rank, double start, std::size_t columns) {
  Cells cells(columns);
  const bool names_chunks = has_chunks(rank);
  for (const TraceSpan& span : rank.spans) {
    if (lane(span.instruction.opcode) != Lane::kCompute || span.end <= span.start) continue;
    const std::size_t end = column_of(span.end - start, span);
    for (std::size_t i = column_of(span.start - start, span); i < end; ++i) {
      std::string& cell = cells[i];
      const bool goes_on = i > column_of(span.start - start, span);
      if (!cell.empty()) cell += '+';
      cell += goes_on ? "=" : cell_of(span.instruction, names_chunks);
    }
  }
  for (std::string& cell : cells) {
    if (cell.empty()) cell = ".";
  }
  return cells;
}

}  // namespace

Costs cell_costs(std::span<const std::unique_ptr<Schedule>> schedules) {
  check_pipe(schedules);
  const bool splits = std::ranges::any_of(
      schedules, [](const auto& schedule) { return splits_backward(*schedule); });
  const double part = splits ? 1.0 : 0.5;
  Costs costs = uniform_costs(schedules.front()->num_stages(), 1, 1.0, part, part);
  costs.optimizer_step = 1.0;
  return costs;
}

std::string to_grid(const Trace& trace) {
  const TraceSummary summary = summarize(trace);
  const auto columns = static_cast<std::size_t>(std::ceil(summary.end - summary.start - 1e-6));
  std::vector<Cells> rows(1);
  std::vector<std::string> names = {"time"};
  for (std::size_t i = 0; i < columns; ++i) rows.front().push_back(std::to_string(i));
  for (const TraceRank& rank : trace.ranks) {
    rows.push_back(cells_of(rank, summary.start, columns));
    names.push_back(rank.name);
  }
  std::vector<std::size_t> widths(columns);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const std::size_t name_width = std::ranges::max(names, {}, &std::string::size).size();
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line = names[r];
    line.resize(name_width + 1, ' ');
    for (std::size_t i = 0; i < columns; ++i) {
      line.append(" " + rows[r][i]).append(widths[i] - rows[r][i].size(), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

Phases phases_of(const TraceRank& rank) {
  Phases phases;
  std::int64_t since_forward = 0;
  bool backward = false;
  for (const TraceSpan& span : rank.spans) {
    if (!is_pass(span.instruction.opcode)) continue;
    const bool forward = span.instruction.opcode == Opcode::kForwardPass;
    backward = backward || !forward;
    ++(backward ? phases.steady : phases.warm_up);
    since_forward = forward ? 0 : since_forward + 1;
  }
  if (!backward) return {0, phases.warm_up, 0};
  phases.steady -= since_forward;
  phases.cool_down = since_forward;
  return phases;
}

}  // namespace penstock::schedule
