// Ranks as processes that fail, are killed, leave or stop: the job ends, all of it, and says why.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/comm/failures.h"

namespace penstock::comm::testing {
namespace {

struct Ended {
  int status = -1;  // exit status of the launcher; 124 when it had to be stopped after 30 s
  std::string output;
};

class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "penstock_fault_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Ended launch(int ranks, const std::filesystem::path& folder, const std::string& name) {
  const std::string command = "timeout -k 5 30 " PENSTOCK_MPIRUN " -n " + std::to_string(ranks) +
                              " " PENSTOCK_FAULT_PROGRAM " " + folder.string() + " " + name +
                              " 2>&1";
  Ended ended;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  char block[4096];
  while (const std::size_t count = std::fread(block, 1, sizeof block, pipe)) {
    ended.output.append(block, count);
  }
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class MpiFailures : public ::testing::TestWithParam<Scenario> {};

TEST_P(MpiFailures, EndAsTheyMust) {
  for (const int ranks : {2, 4}) {
    const Folder folder;
    const Ended ended = launch(ranks, folder.path(), GetParam().name);
    EXPECT_NE(ended.status, 0) << "the launcher must see a failed run";
    EXPECT_NE(ended.status, 124) << "the job did not end";
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
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (kill(pid, 0) == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_NE(kill(pid, 0), 0) << "rank " << rank << " lives on as process " << pid;
  }
}

TEST(Job, FinishesWhenNothingFails) {
  const Folder folder;
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
  const Folder folder;
  const Ended ended = launch(4, folder.path(), GetParam().name);
  EXPECT_NE(ended.status, 0) << ended.output;
  EXPECT_NE(ended.status, 124) << "not gone in 30 s\n" << ended.output;
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
