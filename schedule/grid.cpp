#include "schedule/grid.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace penstock::schedule {
namespace {

using TextRow = std::vector<std::string>;

TextRow row_of(const Schedule& schedule, std::int64_t begin, std::int64_t end) {
  TextRow row = {"rank " + std::to_string(schedule.rank().value)};
  for (std::int64_t step = begin; step < std::min(end, schedule.num_steps()); ++step) {
    row.push_back(grid_cell(schedule, step));
  }
  return row;
}

TextRow header(std::size_t num_columns, std::int64_t begin) {
  TextRow row = {"step"};
  while (row.size() < num_columns) row.push_back(std::to_string(begin++));
  return row;
}

std::vector<std::size_t> column_widths(const std::vector<TextRow>& rows) {
  std::vector<std::size_t> widths;
  for (const TextRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

}  // namespace

std::string grid_cell(const Schedule& schedule, std::int64_t step) {
  Step instructions;
  schedule.emit(step, instructions);
  std::string cell;
  for (const Instruction& instruction : instructions) {
    if (lane(instruction.opcode) != Lane::kCompute) continue;
    if (!cell.empty()) cell += '+';
    cell += letter_of(instruction.opcode);
    if (!has(operands(instruction.opcode), Operands::kMicroBatch)) continue;
    cell += std::to_string(instruction.micro_batch.value);
    if (schedule.num_chunks() > 1) cell.append("c").append(std::to_string(instruction.chunk.value));
  }
  return cell.empty() ? "." : cell;
}

std::string to_grid(std::span<const std::unique_ptr<Schedule>> schedules) {
  return to_grid(schedules, 0, std::numeric_limits<std::int64_t>::max());
}

std::string to_grid(std::span<const std::unique_ptr<Schedule>> schedules, std::int64_t begin,
                    std::int64_t end) {
  begin = std::max<std::int64_t>(begin, 0);
  std::vector<TextRow> rows = {{}};
  for (const auto& schedule : schedules) rows.push_back(row_of(*schedule, begin, end));
  rows.front() = header(std::ranges::max(rows, {}, &TextRow::size).size(), begin);

  const std::vector<std::size_t> widths = column_widths(rows);
  std::string out;
  for (const TextRow& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(widths[i] - row[i].size() + (i == 0 ? 2 : 1), ' ');
    }
    out += '\n';
  }
  return out;
}

}  // namespace penstock::schedule
