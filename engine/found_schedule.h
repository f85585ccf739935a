// The result of a schedule search, as it is kept in run folders and checkpoints.
#pragma once

#include <string>

namespace penstock::engine {

struct FoundSchedule {
  std::string table;      // CSV, which pipeline.schedule "auto:FILE" or "file:FILE" runs again
  std::string costs;      // JSON, which pipeline.cost_file and penstock-schedule read
  std::string name;       // of the candidate that won; "search" when it is none that is built in
  double makespan = 0.0;  // predicted, in seconds of the costs

  friend bool operator==(const FoundSchedule&, const FoundSchedule&) = default;
};

}  // namespace penstock::engine
