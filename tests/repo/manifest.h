// What the build knows about itself, written by CMake for the tests of the repository.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace penstock::repo_test {

struct Manifest {
  std::map<std::string, std::vector<std::string>> links;  // layer -> what its target links
  std::set<std::string> public_headers;                   // "tensor/tensor.h"
  std::vector<std::filesystem::path> archives;            // libpenstock_*.a
};

// Reads the file that tests/repo/CMakeLists.txt generates; throws std::runtime_error when it is
// missing or holds an unknown line.
Manifest read_manifest();

std::filesystem::path source_dir();
std::string read_file(const std::filesystem::path& path);

// Paths, relative to the root of the repository, of the C++ files below a folder of it; sorted.
std::vector<std::string> cpp_files(const std::string& folder);

}  // namespace penstock::repo_test
