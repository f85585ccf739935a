// The code in the documents compiles, since all of it stands in examples/, which is built here; and
// what of it is a program does what it says.
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/repo/command.h"
#include "tests/repo/documents.h"
#include "tests/repo/manifest.h"
#include "tests/support/temporary_folder.h"

namespace penstock::repo_test {
namespace {

namespace fs = std::filesystem;

// White space is one blank, so that a document may indent and break lines as it likes.
std::string without_layout(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      result += c;
    } else if (!result.empty() && result.back() != ' ') {
      result += ' ';
    }
  }
  while (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

// The blocks of code in a language.
std::vector<std::string> blocks_in(const std::string& document, const std::string& language) {
  const std::string fence = "```" + language + "\n";
  std::vector<std::string> blocks;
  for (std::size_t at = 0; (at = document.find(fence, at)) != std::string::npos;) {
    const std::size_t begin = at + fence.size();
    at = document.find("```", begin);
    blocks.push_back(document.substr(begin, at - begin));
    at += 3;
  }
  return blocks;
}

// Its lines "STEP LOSS".
std::vector<double> losses_of(const std::string& command) {
  std::istringstream lines(run(command));
  std::vector<double> losses;
  std::size_t step = 0;
  for (double loss = 0; lines >> step >> loss;) losses.push_back(loss);
  return losses;
}

TEST(Readme, ShowsTheExampleThatIsTested) {
  const std::string readme = read_file(source_dir() / "README.md");
  const std::string example = read_file(source_dir() / "examples/minimal_trainer.cpp");
  EXPECT_NE(readme.find("```cpp\n" + example + "```\n"), std::string::npos);
}

TEST(Documents, ShowCodeOfTheExamples) {
  std::vector<std::string> examples;
  for (const std::string& file : cpp_files("examples")) {
    examples.push_back(without_layout(read_file(source_dir() / file)));
  }
  ASSERT_GE(examples.size(), 4U);
  std::size_t blocks = 0;
  for (const fs::path& document : documents()) {
    for (const std::string& block : blocks_in(read_file(document), "cpp")) {
      ++blocks;
      const std::string code = without_layout(block);
      ASSERT_FALSE(code.empty()) << document;
      bool found = false;
      for (const std::string& example : examples) found |= example.find(code) != std::string::npos;
      EXPECT_TRUE(found) << document << ": no example has\n" << block;
    }
  }
  EXPECT_GE(blocks, 20U);
}

// The first run that a reader makes: docs/start.md has its configuration and its command, and says
// how many micro batches there are.
TEST(Documents, StartWithARunThatBegins) {
  const std::string document = read_file(source_dir() / "docs/start.md");
  const std::vector<std::string> configurations = blocks_in(document, "json");
  ASSERT_EQ(configurations.size(), 1U);
  std::smatch model;
  ASSERT_TRUE(
      std::regex_search(document, model, std::regex(R"(--config run\.json (--model \S+))")));
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "run.json") << configurations[0];
  const std::string plan =
      run("cd '" + folder.path().string() + "' && " PENSTOCK_TRAIN " --config run.json " +
          model[1].str() + " --data '" + (source_dir() / "LICENSE").string() + "' --plan");
  EXPECT_TRUE(
      plan.starts_with("grid: pipe 2 x data 1 x model 1; 1f1b, 8 micro batches of 4 samples\n"))
      << plan;
}

TEST(Examples, MinimalTrainerLearns) {
  const auto losses =
      losses_of(PENSTOCK_EXAMPLE_MINIMAL " '" + (source_dir() / "LICENSE").string() + "'");
  ASSERT_EQ(losses.size(), 100U);
  EXPECT_NEAR(losses.front(), std::log(256.0), 0.5);  // knows nothing yet
  EXPECT_LT(losses.back(), 0.55 * losses.front());
}

TEST(Examples, LayersLearn) {
  const auto losses = losses_of(PENSTOCK_EXAMPLE_LAYERS);
  ASSERT_EQ(losses.size(), 100U);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Examples, TrainerLearnsAndGoesOnFromItsCheckpoint) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "run.json") << R"({
    "train_batch_size": 32, "train_micro_batch_size_per_gpu": 8, "pipeline": {"stages": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";
  const std::string command = "cd '" + folder.path().string() + "' && " + PENSTOCK_EXAMPLE_TRAINER;
  const auto losses = losses_of(command + " 2>log");
  ASSERT_EQ(losses.size(), 200U);
  EXPECT_NEAR(losses.front(), std::log(256.0), 0.5);
  EXPECT_LT(losses.back(), 0.1);  // every number has one that follows
  EXPECT_NE(read_file(folder / "log").find("rank 0: "), std::string::npos);
  fs::remove_all(folder / "run/checkpoints/global_step200");
  std::ofstream(folder / "run/checkpoints/latest") << "global_step100";
  EXPECT_EQ(losses_of(command + " 2>log"), std::vector(losses.begin() + 100, losses.end()));
}

}  // namespace
}  // namespace penstock::repo_test
