// What penstock-train finds before it begins: folders of earlier runs, places that it cannot write
// to, numbers that are too large; and how it ends then.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

namespace fs = std::filesystem;

class PenstockTrainStart : public ::testing::Test {
 protected:
  PenstockTrainStart() {
    std::ofstream(folder_ / "run.json") << R"({
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
      "pipeline": {"stages": 2}, "threads_per_rank": 1,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 100; ++i) text << "line " << i << " of the text to train on\n";
  }

  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  std::string text_of(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ToolResult train(const std::string& more, const std::string& run = "run",
                   const std::string& data = "text.txt") const {
    return run_tool(PENSTOCK_TRAIN,
                    "--config " + in("run.json") + " --data " + in(data) +
                        " --model gpt2:layers=2,width=16,heads=2,context=16,vocabulary=256 --run " +
                        in(run) + " " + more);
  }
  void expect_end(const ToolResult& result, int status, const std::string& text) const {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err << "\nlacks: " << text;
  }

  const testing::TemporaryFolder folder_;
};

// --- the folder of an earlier run

TEST_F(PenstockTrainStart, BeginsAnewWhereARunEndedBeforeItsFirstCheckpoint) {
  fs::create_directories(folder_ / "run/checkpoints/global_step2");  // so that no save succeeds
  expect_end(train("--steps 2"), 1, "global_step2] is in the way and is not a checkpoint");
  fs::remove(folder_ / "run/checkpoints/global_step2");
  const std::string ended = text_of("run/losses.csv");
  ASSERT_NE(ended.find("\n2,"), std::string::npos) << ended;

  // As a run leaves it that is killed in its first save.
  fs::create_directories(folder_ / "run/checkpoints/global_step7.tmp");
  std::ofstream(folder_ / "run/checkpoints/global_step7.tmp/engine.json") << '{';
  const ToolResult again = train("--steps 1");
  expect_end(again, 0, "ended before its first checkpoint; this one begins anew");
  expect_end(again, 0, "removed " + in("run/checkpoints/global_step7.tmp"));
  EXPECT_EQ(text_of("run/losses.ended.csv"), ended);
  EXPECT_EQ(text_of("run/losses.csv").find("\n2,"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "run/checkpoints/global_step7.tmp"));

  expect_end(train("--steps 1"), 1, "holds an earlier run; go on with it by --resume");
}

// Whatever is wrong with a checkpoint, it is not a start that decides to give it up.
TEST_F(PenstockTrainStart, DoesNotBeginAnewBesideADamagedCheckpoint) {
  ASSERT_EQ(train("--steps 1").status, 0);
  fs::remove(folder_ / "run/checkpoints/latest");
  fs::remove(folder_ / "run/checkpoints/global_step1/manifest.json");
  fs::remove(folder_ / "run/losses.csv");
  expect_end(train("--steps 1"), 1, "holds an earlier run");
}

TEST_F(PenstockTrainStart, ResumesWithAFreshOptimizer) {
  ASSERT_EQ(train("--steps 2").status, 0);
  fs::copy(folder_ / "run", folder_ / "other", fs::copy_options::recursive);
  const ToolResult whole = train("--steps 4 --resume");
  expect_end(whole, 0, "resumed from global_step2 at step 2");
  const ToolResult fresh = train("--steps 4 --resume --fresh-optimizer", "other");
  expect_end(fresh, 0, "the optimizer's states stay as they are");
  expect_end(fresh, 0, "resumed from global_step2 at step 2");
  const auto line = [](const std::string& losses, const std::string& step) {
    const std::size_t begin = losses.find("\n" + step + ",") + 1;
    return losses.substr(begin, losses.find('\n', begin) - begin);
  };
  const std::string kept = text_of("run/losses.csv"), anew = text_of("other/losses.csv");
  EXPECT_EQ(line(kept, "3"), line(anew, "3"));  // the same weights and data
  EXPECT_NE(line(kept, "4"), line(anew, "4"));  // after another update
  expect_end(train("--steps 1 --fresh-optimizer", "new"), 2, "--fresh-optimizer is for --resume");
}

TEST_F(PenstockTrainStart, EvaluatesACheckpointWithoutTraining) {
  const std::string evaluation = " --eval-data " + in("text.txt");
  const ToolResult trained = train("--steps 2" + evaluation);
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::size_t begin = trained.err.find("step 2: evaluation loss ");
  ASSERT_NE(begin, std::string::npos) << trained.err;
  const std::string loss = trained.err.substr(begin, trained.err.find('\n', begin) - begin);
  ASSERT_EQ(train("--steps 3 --resume").status, 0);
  const std::string losses = text_of("run/losses.csv"), ranks = text_of("run/ranks.txt");
  const ToolResult again = train("--steps 2 --resume=global_step2" + evaluation);
  expect_end(again, 0, "nothing to train");
  expect_end(again, 0, loss);
  EXPECT_EQ(text_of("run/losses.csv"), losses);
  EXPECT_EQ(text_of("run/ranks.txt"), ranks);
}

TEST_F(PenstockTrainStart, NamesARunFolderThatIsTakenForAModel) {
  ASSERT_EQ(train("--steps 1").status, 0);
  const ToolResult result =
      run_tool(PENSTOCK_TRAIN, "--config " + in("run.json") + " --data " + in("text.txt") +
                                   " --run " + in("other") + " --model " + in("run"));
  expect_end(result, 1, "[model] " + in("run") + " is a run folder; expected one with");
}

TEST_F(PenstockTrainStart, SaysWhyARunFolderCannotBeMade) {
  expect_end(train("--steps 1", "text.txt"), 1,
             "text.txt cannot be made a folder: Not a directory; choose another");
}

TEST_F(PenstockTrainStart, WantsAnOptimizerBeforeItTakesTheFolder) {
  std::ofstream(folder_ / "run.json") << R"({"train_batch_size": 8, "pipeline": {"stages": 2}})";
  expect_end(train("--steps 1"), 1, "[train] the configuration has no \"optimizer\"");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

// --- the command line, and everything else

TEST_F(PenstockTrainStart, RefusesMoreRanksThanAProcessCanRun) {
  expect_end(train("--ranks 100000"), 2, "100000 ranks (--ranks) would be as many threads");
  expect_end(train("--ranks 100000"), 2, "expected at most 1024; start them as processes");
  expect_end(train("--set pipeline.stages=60000"), 2,
             "60000 ranks (pipeline.stages x tensor_parallel.size)");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  const ToolResult plan = train("--ranks 100000 --plan");  // starts none
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_NE(plan.out.find("data 50000"), std::string::npos) << plan.out;
}

TEST_F(PenstockTrainStart, RefusesToLogStagesAndReplicasThatThereAreNot) {
  expect_end(train("--log-stages 0 2"), 2,
             "--log-stages is 2, but there are 2 stages; expected 0 to 1");
  expect_end(train("--log-stages=-1"), 2, "--log-stages is -1");
  expect_end(train("--ranks 4 --log-replicas 2"), 2,
             "--log-replicas is 2, but there are 2 replicas; expected 0 to 1");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(PenstockTrainStart, RefusesAnExportThatCannotBeWritten) {
  std::ofstream(folder_ / "file") << "mine";
  expect_end(train("--steps 1 --export " + in("file")), 1,
             "[train] --export: [" + in("file") + "] is a file; expected a directory");
  fs::create_directories(folder_ / "folder/model.safetensors");
  expect_end(train("--steps 1 --export " + in("folder")), 1,
             "folder/model.safetensors] is a directory; expected a file, or none");
  // A run folder's config.json is the run's, in this run's and in another's.
  expect_end(train("--steps 1 --export " + in("run/")), 1, "run/ is a run folder");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  ASSERT_EQ(train("--steps 1", "other").status, 0);
  const std::string config = text_of("other/config.json");
  expect_end(train("--steps 1 --export " + in("other")), 1, "other is a run folder");
  EXPECT_EQ(text_of("other/config.json"), config);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  // A folder may have any name.
  EXPECT_EQ(train("--steps 1 --export " + in("x.safetensors")).status, 0);
  EXPECT_TRUE(fs::exists(folder_ / "x.safetensors/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "x.safetensors/config.json"));
}

TEST_F(PenstockTrainStart, EndsWithOneForAConfigurationWhateverFindsItWrong) {
  expect_end(train("--set pipeline.stages=x"), 1, "pipeline.stages: expected int");
  expect_end(train("--set pipeline.chunks=3"), 1, "pipeline.chunks is 3; expected 1");
  expect_end(train("--set pipeline.stage_map=[0,1,1,1]"), 1, "");
  expect_end(train("--set pipeline.schedule=zbv --set pipeline.chunks=3"), 1,
             "pipeline.chunks is 3; expected 2");
  expect_end(train("--stops 1"), 2, "--stops");
  expect_end(train("--data-format paper"), 2, "--data-format expects");
}

TEST_F(PenstockTrainStart, NamesAllModelsWhereOneIsUnknown) {
  const ToolResult result = run_tool(
      PENSTOCK_TRAIN, "--config " + in("run.json") + " --data " + in("text.txt") + " --model gpt3");
  expect_end(result, 1,
             "unknown model \"gpt3\"; known are gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama, mlp "
             "and alexnet");
}

// A pipe would be waited for until somebody writes into it.
TEST_F(PenstockTrainStart, RefusesPipesInThePlaceOfFiles) {
  const std::string pipe = in("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_end(train("", "run", "pipe"), 1, "cannot read " + pipe + ": it is not a regular file");
  fs::rename(pipe, folder_ / "run.json");
  expect_end(train(""), 1, "run.json] is neither a file nor a directory; expected a file");
}

}  // namespace
}  // namespace penstock::tools
