// Runs a program as a person would, for the tests that look at what it prints.
#pragma once

#include <stdexcept>
#include <string>

#include "tests/support/command.h"

namespace penstock::repo_test {

// Standard output of a shell command; throws std::runtime_error when it fails.
inline std::string run(const std::string& command) {
  const testing::Ended ended = testing::run_command(command);
  if (ended.status != 0) throw std::runtime_error("failed: " + command + "\n" + ended.output);
  return ended.output;
}

}  // namespace penstock::repo_test
