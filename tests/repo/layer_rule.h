// The include rule of docs/contributing.md as data, and the check of one file against it.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::repo_test {

// The layers, lowest first.
std::vector<std::string> layers();

// What is wrong with the includes of one file of a layer; empty when nothing is.
// path: from the root of the repository; public_headers: those that are installed.
std::vector<std::string> include_violations(const std::string& path, std::string_view text,
                                            const std::set<std::string>& public_headers);

// What is wrong with one library that a layer's CMake target links ("penstock::tensor",
// "hwy::hwy"); empty when nothing is.
std::string link_violation(const std::string& layer, const std::string& library);

}  // namespace penstock::repo_test
