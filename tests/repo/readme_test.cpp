// What the documents say is true: what tools print, where links lead, which packages and errors
// there are.
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/repo/command.h"
#include "tests/repo/documents.h"
#include "tests/repo/manifest.h"

namespace penstock::repo_test {
namespace {

namespace fs = std::filesystem;

// The picture beside the command in the README is what that command draws.
TEST(Readme, ShowsThePictureThatTheToolDraws) {
  const std::string command = " draw zbv --ranks 4 --micro-batches 8 --out ";
  EXPECT_NE(
      read_file(source_dir() / "README.md").find("`penstock-schedule" + command + "docs/zbv.svg`"),
      std::string::npos);
  const fs::path drawn = fs::temp_directory_path() / "penstock_repo_test_zbv.svg";
  run(PENSTOCK_SCHEDULE + command + "'" + drawn.string() + "'");
  EXPECT_EQ(read_file(source_dir() / "docs/zbv.svg"), read_file(drawn));
  fs::remove(drawn);
}

// Every block of a document that begins with a command of penstock-schedule is what it prints.
TEST(Documents, ShowWhatTheToolPrints) {
  static const std::string kPrompt = "```\n$ penstock-schedule";
  std::size_t blocks = 0;
  for (const fs::path& document : documents()) {
    const std::string text = read_file(document);
    for (std::size_t at = 0; (at = text.find(kPrompt, at)) != std::string::npos; ++blocks) {
      const std::size_t arguments = at + kPrompt.size();
      const std::size_t output = text.find('\n', arguments) + 1;
      at = text.find("```\n", output);
      ASSERT_NE(at, std::string::npos) << document;
      const std::string command = text.substr(arguments, output - 1 - arguments);
      const std::string in_tree = "cd '" + source_dir().string() + "' && " PENSTOCK_SCHEDULE;
      EXPECT_EQ(text.substr(output, at - output), run(in_tree + command))
          << document << ": penstock-schedule" << command;
    }
  }
  EXPECT_GE(blocks, 3U);
}

TEST(Documents, LinksLeadSomewhere) {
  static const std::regex kLink("\\]\\(([^) #]+)(#[^) ]*)?\\)");
  std::size_t links = 0;
  for (const fs::path& document : documents()) {
    const std::string text = read_file(document);
    for (std::sregex_iterator match(text.begin(), text.end(), kLink), end; match != end; ++match) {
      const std::string target = (*match)[1];
      if (target.starts_with("http")) continue;
      ++links;
      EXPECT_TRUE(fs::exists(document.parent_path() / target)) << document << " -> " << target;
    }
  }
  EXPECT_GT(links, 0U);
}

TEST(Documents, NameEveryPackageThatIsInstalled) {
  static const std::regex kList("packages_\\w+=\\(([^)]*)\\)");
  const std::string script = read_file(source_dir() / "tools/support/common.sh");
  const std::string document = read_file(source_dir() / "docs/dependencies.md");
  std::size_t packages = 0;
  for (std::sregex_iterator match(script.begin(), script.end(), kList), end; match != end;
       ++match) {
    std::istringstream words((*match)[1]);
    for (std::string package; words >> package; ++packages) {
      EXPECT_NE(document.find("`" + package + "`"), std::string::npos) << package;
    }
  }
  EXPECT_GE(packages, 10U);
}

TEST(Documents, NameEveryError) {
  static const std::regex kError(
      "class (\\w+)( final)? : public [\\w:]*(Error|invalid_argument)\\b");
  const std::string document = read_file(source_dir() / "docs/errors.md");
  std::size_t errors = 0;
  for (const char* layer : {"schedule", "tensor", "comm", "model", "checkpoint", "engine"}) {
    for (const std::string& file : cpp_files(layer)) {
      const std::string text = read_file(source_dir() / file);
      for (std::sregex_iterator match(text.begin(), text.end(), kError), end; match != end;
           ++match, ++errors) {
        const std::string name = std::string(layer) + "::" + (*match)[1].str();
        EXPECT_NE(document.find("`" + name + "`"), std::string::npos) << name << " in " << file;
      }
    }
  }
  EXPECT_GE(errors, 10U);
}

}  // namespace
}  // namespace penstock::repo_test
