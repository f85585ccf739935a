// Helpers of the configuration tests.
#pragma once

#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/config.h"

namespace penstock::engine::test {

// The message of the ConfigError that `call` throws; empty, and a failure, if it throws none.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

// The message with which parse_config refuses `text`.
inline std::string config_error(const std::string& text,
                                std::span<const std::string> overrides = {}) {
  SCOPED_TRACE(text);
  return error_of([&] { parse_config(text, "test.json", overrides); });
}

inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << part << "\" in:\n" << text;
}
#define EXPECT_HAS(text, part) EXPECT_TRUE(::penstock::engine::test::has(text, part))

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The rows of a golden file, one JSON document per line.
inline std::vector<nlohmann::json> golden_rows(const std::string& name) {
  std::ifstream file(std::string(PENSTOCK_GOLDEN_DIR "/") + name);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

}  // namespace penstock::engine::test
