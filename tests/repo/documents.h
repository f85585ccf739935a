// The documents of the repository, for the tests that read them.
#pragma once

#include <filesystem>
#include <vector>

#include "tests/repo/manifest.h"

namespace penstock::repo_test {

// The README and the pages of docs/.
inline std::vector<std::filesystem::path> documents() {
  std::vector<std::filesystem::path> result = {source_dir() / "README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "docs")) {
    if (entry.path().extension() == ".md") result.push_back(entry.path());
  }
  return result;
}

}  // namespace penstock::repo_test
