// The rules of docs/contributing.md that a line of text can break.
#include <algorithm>
#include <regex>

#include <gtest/gtest.h>

#include "tests/repo/manifest.h"

namespace penstock::repo_test {
namespace {

constexpr std::ptrdiff_t kMaxLines = 400;

std::vector<std::string> convention_violations(const std::string& path, const std::string& text) {
  static const std::regex kUnfinished("\\b(TODO|FIXME|XXX)\\b");
  static const std::regex kThreadLocal("\\bthread_local\\b");
  const bool is_test = path.starts_with("tests/");
  std::vector<std::string> result;
  if (std::count(text.begin(), text.end(), '\n') > kMaxLines) result.emplace_back("too long");
  if (path.ends_with(".h")) {
    const bool included_again = path.ends_with("-inl.h");  // once for each SIMD target
    if (!included_again && text.find("#pragma once\n") == std::string::npos) {
      result.emplace_back("no #pragma once");
    }
    if (!text.starts_with("//")) result.emplace_back("does not begin with why it exists");
  }
  if (std::regex_search(text, kUnfinished)) result.emplace_back("unfinished");
  if (!is_test && std::regex_search(text, kThreadLocal)) result.emplace_back("thread_local");
  return result;
}

TEST(Conventions, CatchWhatTheyForbid) {
  const std::string good = "// Why.\n#pragma once\n";
  EXPECT_TRUE(convention_violations("tensor/a.h", good).empty());
  EXPECT_EQ(convention_violations("tensor/a.h", "#pragma once\n").size(), 1U);
  EXPECT_EQ(convention_violations("tensor/a.h", "// Why.\n").size(), 1U);
  EXPECT_EQ(convention_violations("tensor/a.h", good + "thread_local int a;\n").size(), 1U);
  EXPECT_EQ(convention_violations("tensor/a.cpp",
                                  "// FIX"
                                  "ME\n")
                .size(),
            1U);
  EXPECT_EQ(convention_violations("tensor/a.cpp", std::string(401, '\n')).size(), 1U);
  EXPECT_TRUE(convention_violations("tensor/a.cpp", std::string(400, '\n')).empty());
}

TEST(Conventions, HoldForEveryFile) {
  for (const char* folder : {"schedule", "tensor", "comm", "model", "checkpoint", "engine", "tools",
                             "tests", "examples"}) {
    for (const std::string& file : cpp_files(folder)) {
      if (file == "tests/repo/conventions_test.cpp") continue;  // names what it forbids
      for (const std::string& violation :
           convention_violations(file, read_file(source_dir() / file))) {
        ADD_FAILURE() << file << ": " << violation;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::repo_test
