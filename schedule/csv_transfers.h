// The communication of a CSV file, checked; private to its reader.
#pragma once

#include <vector>

#include "schedule/csv_cell.h"
#include "schedule/table.h"

namespace penstock::schedule {

// The cells of a file, by line and column.
using CsvLines = std::vector<std::vector<CsvCell>>;

// "line 1, column 3", from indices.
std::string csv_place(std::size_t line, std::size_t column);

// ScheduleError unless the cells of communication fit the table, which is that of the lines and
// which check_table() accepts.
void check_transfers(const CsvLines& lines, const Table& table);

}  // namespace penstock::schedule
