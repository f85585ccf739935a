// check_table() in the words of the place that a table comes from; private to this layer.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "schedule/table.h"

namespace penstock::schedule {

struct TablePlaces {
  std::string source;  // what errors begin with, in brackets
  // Names a cell, such as "rank 1, cell 7".
  std::function<std::string(PipeRank, std::size_t cell)> cell;
};

void check_table(const Table& table, const TablePlaces& places);

}  // namespace penstock::schedule
