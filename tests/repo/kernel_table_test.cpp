// docs/gpu-kernels.md names every kernel of tensor/cuda, under its file, and no others.
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/repo/manifest.h"

namespace penstock::repo_test {
namespace {

using Kernels = std::set<std::string>;

Kernels kernels_of(const std::string& source) {
  static const std::regex kKernel(
      R"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?([A-Za-z_]\w*)\()");
  Kernels kernels;
  for (std::sregex_iterator match(source.begin(), source.end(), kKernel), end; match != end;
       ++match) {
    kernels.insert((*match)[1]);
  }
  return kernels;
}

// By file: what the first column says before "<" or "`".
std::map<std::string, Kernels> table_of(const std::string& document) {
  static const std::regex kFile(R"(^\| \*\*([\w.]+)\*\* \|)"), kRow(R"(^\| `(\w+)[<`])");
  std::map<std::string, Kernels> table;
  std::string file;
  std::istringstream text(document);
  for (std::string line; std::getline(text, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kFile)) file = match[1];
    if (std::regex_search(line, match, kRow)) table[file].insert(match[1]);
  }
  return table;
}

std::string listed(const Kernels& kernels, const Kernels& without) {
  std::string text;
  for (const std::string& name : kernels) {
    if (!without.contains(name)) text += name + " ";
  }
  return text;
}

TEST(KernelTable, FindsKernelsHoweverTheyAreBrokenIntoLines) {
  EXPECT_EQ(kernels_of("template <class T>\n__global__ void __launch_bounds__(kWarps* kWarp, 2)\n"
                       "    attend(const T* a) {\n}\n__global__ void fill(int n) {}\n"),
            (Kernels{"attend", "fill"}));
  EXPECT_EQ(table_of("| **a.cu** | |\n| `attend<BF16, 64>` | 3 |\n| `fill`, 9 instances | 4 |\n"),
            (std::map<std::string, Kernels>{{"a.cu", {"attend", "fill"}}}));
}

TEST(KernelTable, NamesEveryKernelUnderItsFile) {
  const auto table = table_of(read_file(source_dir() / "docs/gpu-kernels.md"));
  Kernels of_headers, all, in_table;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tensor/cuda")) {
    const Kernels kernels = kernels_of(read_file(entry.path()));
    all.insert(kernels.begin(), kernels.end());
    if (entry.path().extension() == ".h") of_headers.insert(kernels.begin(), kernels.end());
    if (entry.path().extension() != ".cu") continue;
    const std::string file = entry.path().filename().string();
    const Kernels rows = table.contains(file) ? table.at(file) : Kernels();
    EXPECT_EQ(listed(kernels, rows), "") << file << ": run tools/gpu_kernels";
  }
  for (const auto& [file, rows] : table) in_table.insert(rows.begin(), rows.end());
  EXPECT_EQ(listed(of_headers, in_table), "") << "run tools/gpu_kernels";
  EXPECT_EQ(listed(in_table, all), "") << "these are no kernels any more: run tools/gpu_kernels";
  EXPECT_GT(all.size(), 30U);
}

}  // namespace
}  // namespace penstock::repo_test
