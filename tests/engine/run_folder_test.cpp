// The folder of a run: who may use it, and what a resumed run keeps of its losses.
#include "engine/run_folder.h"

#include <fstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/errors.h"
#include "tests/support/temporary_folder.h"

namespace penstock::engine {
namespace {

using testing::TemporaryFolder;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TrainResult step(std::int64_t number, float loss) {
  TrainResult result;
  result.step = number;
  result.loss = loss;
  result.lr = {0.5};
  result.grad_norm = 2.0;
  return result;
}

constexpr const char* kHeader = "step,samples,loss,lr,grad_norm,skipped\n";

TEST(RunFolder, KeepsTheLossesUpToTheStepThatIsResumed) {
  const TemporaryFolder folder;
  {
    RunFolder first(folder / "run");
    EXPECT_FALSE(first.used());
    first.begin_losses(0);
    for (int i = 1; i <= 3; ++i) first.append(step(i, 1.5F), 8 * i);
  }
  RunFolder second(folder / "run");
  EXPECT_TRUE(second.used());
  second.begin_losses(2);
  second.append(step(3, 1.25F), 24);
  EXPECT_EQ(text_of(folder / "run" / "losses.csv"),
            std::string(kHeader) + "1,8,1.5,0.5,2,0\n2,16,1.5,0.5,2,0\n3,24,1.25,0.5,2,0\n");
}

TEST(RunFolder, SetsLossesAside) {
  const TemporaryFolder folder;
  RunFolder run(folder.path());
  EXPECT_TRUE(run.alone());
  run.begin_losses(0);
  run.append(step(1, 1.5F), 8);
  const std::string losses = text_of(folder / "losses.csv");
  EXPECT_EQ(run.set_losses_aside(), folder / "losses.ended.csv");
  EXPECT_FALSE(run.used());
  EXPECT_EQ(text_of(folder / "losses.ended.csv"), losses);
}

TEST(RunFolder, IsOneRunsAtATime) {
  const TemporaryFolder folder;
  {
    const RunFolder mine(folder / "run");
    EXPECT_EQ(testing::message<tensor::Error>([&] { RunFolder(folder / "run"); })
                  .find("[run folder] " + (folder / "run").string() + " is in use by process " +
                        std::to_string(getpid()) + " on "),
              0u);
  }
  EXPECT_NO_THROW(RunFolder(folder / "run"));
}

TEST(RunFolder, IsFreeWhenTheProcessThatHeldItIsGone) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    new RunFolder(folder / "run");  // never given back
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(text_of(folder / "run" / "run.lock").find("process " + std::to_string(child)), 0u);
  EXPECT_NO_THROW(RunFolder(folder / "run"));
}

}  // namespace
}  // namespace penstock::engine
