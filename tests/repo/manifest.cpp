#include "tests/repo/manifest.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace penstock::repo_test {

namespace fs = std::filesystem;

Manifest read_manifest() {
  Manifest manifest;
  std::istringstream lines(read_file(PENSTOCK_MANIFEST));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, name, value;
    words >> kind >> name;
    if (kind == "layer") {
      manifest.links[name];
    } else if (kind == "link") {
      words >> value;
      manifest.links[name].push_back(value);
    } else if (kind == "header") {
      manifest.public_headers.insert(name);
    } else if (kind == "archive") {
      manifest.archives.emplace_back(name);
    } else {
      throw std::runtime_error("unknown line in " PENSTOCK_MANIFEST ": " + line);
    }
  }
  return manifest;
}

fs::path source_dir() {
  return PENSTOCK_SOURCE_DIR;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> cpp_files(const std::string& folder) {
  static const std::set<std::string> kExtensions = {".h",   ".cpp", ".def", ".inc",
                                                    ".hpp", ".cc",  ".cu",  ".cuh"};
  std::vector<std::string> result;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / folder)) {
    if (entry.is_regular_file() && kExtensions.contains(entry.path().extension().string())) {
      result.push_back(fs::relative(entry.path(), source_dir()).generic_string());
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace penstock::repo_test
