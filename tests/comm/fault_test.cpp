// Ranks as processes that fail, are killed, leave or stop: the job ends, all of it, and says why.
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/comm/failures.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace penstock::comm::testing {
namespace {

using penstock::testing::Ended;
using penstock::testing::TemporaryFolder;

Ended launch(int ranks, const std::filesystem::path& folder, const std::string& name) {
  return penstock::testing::run_processes(
      PENSTOCK_MPIRUN, ranks, PENSTOCK_FAULT_PROGRAM " " + folder.string() + " " + name, 30);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class MpiFailures : public ::testing::TestWithParam<Scenario> {};

TEST_P(MpiFailures, EndAsTheyMust) {
  for (const int ranks : {2, 4}) {
    const TemporaryFolder folder;
    const Ended ended = launch(ranks, folder.path(), GetParam().name);
    EXPECT_NE(ended.status, 0) << "the launcher must see a failed run";
    EXPECT_NE(ended.status, Ended::kTooSlow) << "the job did not end";
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(std::filesystem::exists(folder.path() / ("passed" + std::to_string(rank))))
          << "rank " << rank << " of " << ranks << "\n"
          << ended.output;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MpiFailures, ::testing::ValuesIn(scenarios()),
                         [](const auto& each) { return each.param.name; });

// The processes that the ranks were.
void expect_gone(const std::filesystem::path& folder, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    int pid = 0;
    std::ifstream(folder / ("pid" + std::to_string(rank))) >> pid;
    ASSERT_GT(pid, 0);
    EXPECT_TRUE(penstock::testing::ends(pid)) << "rank " << rank << " lives on as process " << pid;
  }
}

TEST(Job, FinishesWhenNothingFails) {
  const TemporaryFolder folder;
  const Ended ended = launch(4, folder.path(), "finish");
  EXPECT_EQ(ended.status, 0) << ended.output;
  expect_gone(folder.path(), 4);
}

struct Fault {
  std::string name;
  std::string said;  // by a rank or by the launcher
};

class JobWithFault : public ::testing::TestWithParam<Fault> {};

TEST_P(JobWithFault, IsGoneAndSaysWho) {
  const TemporaryFolder folder;
  const Ended ended = launch(4, folder.path(), GetParam().name);
  EXPECT_NE(ended.status, 0) << ended.output;
  EXPECT_NE(ended.status, Ended::kTooSlow) << "not gone in 30 s\n" << ended.output;
  EXPECT_TRUE(contains(ended.output, GetParam().said)) << ended.output;
  expect_gone(folder.path(), 4);
}

INSTANTIATE_TEST_SUITE_P(
    All, JobWithFault,
    ::testing::Values(Fault{"kill", "process rank 2"}, Fault{"exit", "process rank 1"},
                      Fault{"stop", "rank 3 did not come"},
                      Fault{"throw",
                            "says: peer lost: rank 3 (stage 3, ForwardPass(c0 m3 b1), micro batch "
                            "3): the loss function threw"}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace penstock::comm::testing
