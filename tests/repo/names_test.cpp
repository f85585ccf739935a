// Who comes from DeepSpeed or PyTorch finds every name of theirs in the documents, and no others.
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/repo/manifest.h"

namespace penstock::repo_test {
namespace {

using Names = std::set<std::string>;

struct Golden {
  Names names, keys;  // keys: of the section "configuration keys"
};

Golden golden(const std::string& file) {
  Golden result;
  std::istringstream text(read_file(source_dir() / "tests/golden" / file));
  bool keys = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('#')) {
      keys = line == "# configuration keys";
      continue;
    }
    std::istringstream words(line);
    for (std::string name; words >> name;) (keys ? result.keys : result.names).insert(name);
  }
  return result;
}

// What stands in backticks in the first column of those tables whose first column has this head.
Names first_column(const std::string& document, const std::string& head) {
  static const std::regex kName("`([^`]+)`");
  Names names;
  std::istringstream text(read_file(source_dir() / "docs" / document));
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    const bool is_row = line.starts_with('|');
    if (line.starts_with("| " + head + " |")) inside = true;
    if (!is_row) inside = false;
    if (!inside) continue;
    const std::string cell = line.substr(1, line.find('|', 1) - 1);
    for (std::sregex_iterator match(cell.begin(), cell.end(), kName), end; match != end; ++match) {
      names.insert((*match)[1]);
    }
  }
  return names;
}

std::string listed(const Names& names, const Names& without) {
  std::string text;
  for (const std::string& name : names) {
    if (!without.contains(name)) text += name + " ";
  }
  return text;
}

void expect_equal(const Names& documented, const Names& wanted) {
  EXPECT_EQ(listed(wanted, documented), "") << "not in the document";
  EXPECT_EQ(listed(documented, wanted), "") << "not in the list";
}

TEST(Names, OfDeepSpeedAreThoseOfTheDocument) {
  const Golden wanted = golden("deepspeed_names.txt");
  ASSERT_GT(wanted.names.size(), 100u);
  expect_equal(first_column("from-deepspeed.md", "DeepSpeed"), wanted.names);
}

TEST(Names, OfPyTorchAreThoseOfTheDocument) {
  const Golden wanted = golden("pytorch_names.txt");
  ASSERT_GT(wanted.names.size(), 70u);
  expect_equal(first_column("from-pytorch.md", "PyTorch"), wanted.names);
}

// The table of configuration keys has more: Penstock's own, and optimizers' of other libraries.
TEST(Names, OfDeepSpeedsConfigurationAreInItsDocument) {
  const Golden wanted = golden("deepspeed_names.txt");
  ASSERT_GT(wanted.keys.size(), 100u);
  const std::string document = read_file(source_dir() / "docs/config.md");
  for (const std::string& key : wanted.keys) {
    EXPECT_NE(document.find("`" + key + "`"), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace penstock::repo_test
