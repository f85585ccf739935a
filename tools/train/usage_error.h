// How penstock-train tells a wrong command line, which ends it with a status of its own.
#pragma once

#include <stdexcept>

namespace penstock::tools {

// The command line is wrong, by itself or for the grid that the configuration makes.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace penstock::tools
