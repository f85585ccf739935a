// Runs as processes that die: one rank is killed at a chosen file operation of a save, a step
// fails, a rank stops or finds no room, all are ended. The job ends, and what is on the disk is the
// last checkpoint, whole.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/engine/fault_runs.h"
#include "tests/support/command.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

Ended launch(int ranks, const std::string& arguments) {
  return run_processes(PENSTOCK_MPIRUN, ranks, PENSTOCK_FAULT_PROGRAM " " + arguments, 60);
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// --- a kill while saving

// Weights of kSaveRun after that many steps.
Weights weights_after(int steps) {
  return merged(on_ranks<Weights>(kSaveRun.ranks(), [steps](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(kSaveRun), mlp_samples(64));
    for (int step = 0; step < steps; ++step) engine.train_batch();
    Weights weights = weights_of(engine);
    engine.close();
    return weights;
  }));
}

struct Loaded {
  std::string tag;
  std::int64_t steps = 0;
  Weights weights;
};

// In a fresh run, without a tag.
Loaded load(const fs::path& folder) {
  Loaded loaded;
  loaded.weights = merged(on_ranks<Weights>(2, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of({.pipe = 2}), nullptr);
    const std::string tag = engine.load_checkpoint(folder).tag;
    if (world.rank() == 0) {
      loaded.tag = tag;
      loaded.steps = engine.global_steps();
    }
    Weights weights = weights_of(engine);
    engine.close();
    return weights;
  }));
  return loaded;
}

std::string error_of_loading(const fs::path& folder, const std::string& tag) {
  return on_ranks<std::string>(2, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of({.pipe = 2}), nullptr);
    std::string error = thrown_by([&] { engine.load_checkpoint(folder, tag); });
    engine.close();
    return error;
  })[0];
}

// Goes on from the checkpoint to step 2, and saves it under the tag of the save that was cut short.
void save_again(const fs::path& folder) {
  on_ranks<bool>(kSaveRun.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(kSaveRun), mlp_samples(64));
    engine.load_checkpoint(folder);
    while (engine.global_steps() < 2) engine.train_batch();
    engine.save_checkpoint(folder, "step20");
    engine.close();
    return true;
  });
}

struct Kill {
  int rank;
  std::string when, call, file;
  bool named;  // step20 has its name by then
  bool is_latest = false;
};

// `mode` is that of fault_program.
void kill_at_each(const std::string& mode, const std::vector<Kill>& kills) {
  const Weights step10 = weights_after(1);
  const Weights step20 = weights_after(2);
  ASSERT_NE(step10, step20);
  for (const Kill& kill : kills) {
    SCOPED_TRACE("rank " + std::to_string(kill.rank) + " " + kill.when + " " + kill.call + " " +
                 kill.file);
    const TemporaryFolder folder;
    const Ended ended = launch(kSaveRun.ranks(), mode + " " + folder.path().string() + " " +
                                                     std::to_string(kill.rank) + " " + kill.when +
                                                     " " + kill.call + " " + kill.file);
    // The kill hit the second save, and the launcher saw it.
    const std::string rank = std::to_string(std::max(kill.rank, 0));
    ASSERT_TRUE(fs::exists(folder.path() / ("saving" + rank))) << ended.output;
    ASSERT_FALSE(fs::exists(folder.path() / ("saved" + rank))) << ended.output;
    EXPECT_NE(ended.output.find("signal 9"), std::string::npos) << ended.output;
    EXPECT_NE(ended.status, 0);
    EXPECT_NE(ended.status, Ended::kTooSlow) << "the job did not end";

    const fs::path checkpoints = folder.path() / "checkpoints";
    const Loaded loaded = load(checkpoints);
    EXPECT_EQ(loaded.tag, kill.is_latest ? "step20" : "step10");
    EXPECT_EQ(loaded.steps, kill.is_latest ? 2 : 1);
    EXPECT_EQ(loaded.weights, kill.is_latest ? step20 : step10);
    const std::string error = error_of_loading(checkpoints, "step20");
    if (kill.named) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_NE(error.find("step20] is incomplete: missing manifest.json"), std::string::npos)
          << error;
      EXPECT_NE(error.find("complete tags here: step10"), std::string::npos) << error;
    }
    save_again(checkpoints);
    EXPECT_EQ(load(checkpoints).tag, "step20");
    EXPECT_EQ(load(checkpoints).weights, step20);
  }
}

TEST(KillWhileSaving, LeavesTheLastCheckpointWhole) {
  kill_at_each("save",
               {
                   {3, "before", "fsync", "layer_05-model_00-model_states.safetensors", false},
                   {3, "after", "fsync", "layer_07-model_00-optim_states.safetensors", false},
                   {1, "after", "fsync", "step20.tmp", false},
                   {0, "before", "fsync", "engine.json", false},
                   {0, "after", "fsync", "manifest.json", false},
                   {0, "before", "rename", "step20", false},
                   {0, "after", "rename", "step20", true},
                   {0, "before", "rename", "latest", true},
                   {0, "after", "rename", "latest", true, true},
                   {-1, "before", "fsync", "step20.tmp", false},
               });
}

TEST(KillWhileSaving, BesideTheTrainingLeavesTheLastCheckpointWhole) {
  kill_at_each("async",
               {
                   {3, "before", "fsync", "layer_05-model_00-model_states.safetensors", false},
                   {0, "after", "fsync", "engine.json", false},
                   {0, "before", "rename", "step20", false},
                   {0, "before", "rename", "latest", true},
                   {0, "after", "rename", "latest", true, true},
                   {-1, "before", "fsync", "step20.tmp", false},
               });
}

// --- a step that fails

TEST(FailedStep, EndsEveryProcessWithItsFirstCause) {
  const TemporaryFolder folder;
  const Ended ended = launch(kLossRun.ranks(), "loss " + folder.path().string());
  EXPECT_NE(ended.status, 0);
  EXPECT_NE(ended.status, Ended::kTooSlow) << "the job did not end";
  const std::string cause =
      "rank 3 (stage 3, ForwardPass(c0 m3 b0), micro batch 3): the loss fails here";
  for (int rank = 0; rank < kLossRun.ranks(); ++rank) {
    EXPECT_EQ(text_of(folder.path() / ("first" + std::to_string(rank))),
              (rank == 3 ? "ExecutionError: " : "PeerLost: peer lost: ") + cause)
        << ended.output;
    EXPECT_NE(text_of(folder.path() / ("later" + std::to_string(rank)))
                  .find("this engine cannot be used any more"),
              std::string::npos);
  }
  const Loaded loaded = load(folder.path() / "checkpoints");
  EXPECT_EQ(loaded.tag, "step1");
  EXPECT_EQ(loaded.steps, 1);
}

// --- ranks that stop, are ended, or find no room

std::vector<pid_t> processes(const fs::path& folder) {
  std::vector<pid_t> ids;
  for (int rank = 0; rank < kLossRun.ranks(); ++rank) {
    std::ifstream in(folder / ("pid" + std::to_string(rank)));
    pid_t id = 0;
    std::string end;
    if (in >> id && std::getline(in, end) && !in.eof()) ids.push_back(id);  // written to its end
  }
  return ids;
}

void expect_gone_with_checkpoint(const Ended& ended, const fs::path& folder) {
  EXPECT_NE(ended.status, 0);
  EXPECT_NE(ended.status, Ended::kTooSlow) << "the job did not end";
  const std::vector<pid_t> ids = processes(folder);
  EXPECT_EQ(ids.size(), 4u) << ended.output;
  for (const pid_t id : ids) EXPECT_TRUE(ends(id)) << "process " << id << " lives on";
  const Loaded loaded = load(folder / "checkpoints");
  EXPECT_EQ(loaded.tag, "step1");
  EXPECT_EQ(loaded.steps, 1);
}

TEST(StoppedRank, EndsTheJobWhenTheTimeIsOver) {
  const TemporaryFolder folder;
  const Ended ended = launch(kLossRun.ranks(), "stop " + folder.path().string());
  expect_gone_with_checkpoint(ended, folder.path());
  // Whoever waited longest says for what, and where in the step; the others that it was lost.
  EXPECT_NE(ended.output.find("says: ExecutionError: rank "), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("waited 3 s for a message"), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("did not come; see whether that rank failed or is slow"),
            std::string::npos)
      << ended.output;
  EXPECT_NE(ended.output.find("says: PeerLost: peer lost: rank "), std::string::npos)
      << ended.output;
}

TEST(TerminatedRanks, LeaveNoProcessAndTheLastCheckpoint) {
  const TemporaryFolder folder;
  Ended ended;
  std::thread job([&] { ended = launch(kLossRun.ranks(), "endless " + folder.path().string()); });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  std::vector<pid_t> ids;
  while (ids.size() < 4 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ids = processes(folder.path());
  }
  EXPECT_EQ(ids.size(), 4u) << "the run does not begin";
  for (const pid_t id : ids) kill(id, SIGTERM);
  job.join();
  expect_gone_with_checkpoint(ended, folder.path());
  EXPECT_NE(ended.output.find("signal 15"), std::string::npos) << ended.output;
}

TEST(NoRoom, OnOneRankIsToldByAllBeforeTheFirstStep) {
  const TemporaryFolder folder;
  const Ended ended = launch(kLossRun.ranks(), "memory " + folder.path().string());
  EXPECT_NE(ended.status, 0);
  EXPECT_NE(ended.status, Ended::kTooSlow) << "the job did not end";
  for (int rank = 0; rank < kLossRun.ranks(); ++rank) {
    // Its weights or its gradients. On its own rank the error is of its own kind.
    const std::string text = text_of(folder.path() / ("first" + std::to_string(rank)));
    const std::string kind = rank == 0 ? "Error: " : "CallRefused: [Engine] rank 0: ";
    EXPECT_TRUE(text.starts_with(kind + "[memory] there is no room for a tensor of 28147"))
        << text << ended.output;
    EXPECT_TRUE(text.ends_with(
        " bytes; use smaller micro batches, a smaller model or more pipeline stages"))
        << text;
  }
}

}  // namespace
}  // namespace penstock::testing
