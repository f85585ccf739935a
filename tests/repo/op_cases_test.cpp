// Every operation is compared on CUDA devices.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace penstock::repo_test {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OpCases, NameEveryOperation) {
  const fs::path root = PENSTOCK_SOURCE_DIR;
  std::string cases;
  for (const auto& entry : fs::directory_iterator(root / "tests/tensor/cuda")) {
    if (entry.path().filename().string().ends_with("_cases.cpp")) cases += read(entry.path());
  }
  std::set<std::string> operations;
  for (const auto& entry : fs::directory_iterator(root / "tensor/ops")) {
    const std::string file = entry.path().filename().string();
    // What operations share among themselves, and those that users write.
    if (!file.ends_with(".h") ||
        std::set<std::string>{"add_grad.h", "custom.h", "unary.h"}.contains(file))
      continue;
    const std::string text = read(entry.path());
    static const std::regex declared(R"(\n[A-Za-z:<>]+ (\w+)\(Context& context)");
    for (std::sregex_iterator at(text.begin(), text.end(), declared), end; at != end; ++at) {
      operations.insert((*at)[1]);
    }
  }
  EXPECT_GT(operations.size(), 50U);
  for (const std::string& name : operations) {
    const std::regex called("\\b" + name + "\\b");
    EXPECT_TRUE(std::regex_search(cases, called))
        << name << " has no case in tests/tensor/cuda/*_cases.cpp";
  }
}

}  // namespace
}  // namespace penstock::repo_test
