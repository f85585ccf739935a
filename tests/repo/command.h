// Runs a program as a person would, for the tests that look at what it prints.
#pragma once

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace penstock::repo_test {

// Standard output of a shell command; throws std::runtime_error when it fails.
inline std::string run(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string output;
  std::array<char, 4096> block;
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), pipe)) {
    output.append(block.data(), n);
  }
  if (pclose(pipe) != 0) throw std::runtime_error("failed: " + command + "\n" + output);
  return output;
}

}  // namespace penstock::repo_test
