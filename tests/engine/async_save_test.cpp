// Asynchronous saves: training goes on, the checkpoint is that of the moment it was asked for, and
// whatever goes wrong is said by the next call on all ranks.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

// What fsync() does: waits as long as it is held, then fails for files whose path contains the
// text. Set while no save is under way.
std::atomic<bool> held = false;
std::atomic<const char*> fails_for = nullptr;

std::string path_of(int fd) {
  char path[4096];
  const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

int sync_file(int fd) {
  while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const char* const text = fails_for;
  if (text != nullptr && path_of(fd).find(text) != std::string::npos) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

}  // namespace
}  // namespace penstock::testing

// In the place of the C library's, for all that is linked into this program.
extern "C" int fsync(int fd) {
  return penstock::testing::sync_file(fd);
}

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

const RunSpec kRun{.pipe = 2,
                   .data = 2,
                   .micro = 2,
                   .gas = 2,
                   .optimizer = R"({"type": "AdamW", "params": {"lr": 0.01}})",
                   .more = R"({"checkpoint": {"async": true}})"};
constexpr int kSteps = 12;

struct Outcome {
  std::vector<double> losses;
  Weights weights;
  std::string error;
};

void train(engine::Engine& engine, int steps, Outcome& outcome) {
  for (int step = 0; step < steps; ++step) outcome.losses.push_back(engine.train_batch().loss);
}

// `use` on each rank of kRun, which closes the engine if it wants to.
std::vector<Outcome> run_ranks(
    const std::function<void(comm::World&, engine::Engine&, Outcome&)>& use,
    const RunSpec& run = kRun) {
  return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(0.1), config_of(run), mlp_samples(256));
    Outcome outcome;
    use(world, engine, outcome);
    outcome.weights = weights_of(engine);
    return outcome;
  });
}

// Without any save.
Outcome plain_run(int steps) {
  return run_ranks([&](comm::World&, engine::Engine& engine, Outcome& outcome) {
    train(engine, steps, outcome);
    engine.close();
  })[0];
}

// What a fresh run loads without a tag, and the losses of so many steps from there.
struct Resumed {
  std::string tag;
  std::int64_t step = 0;
  std::vector<double> losses;
};
Resumed resume(const fs::path& folder, int steps) {
  Resumed resumed;
  const auto outcomes = run_ranks([&](comm::World& world, engine::Engine& engine, Outcome& out) {
    const std::string tag = engine.load_checkpoint(folder).tag;
    if (world.rank() == 0) {
      resumed.tag = tag;
      resumed.step = engine.global_steps();
    }
    train(engine, steps, out);
    engine.close();
  });
  resumed.losses = outcomes[0].losses;
  return resumed;
}

std::vector<double> part(const std::vector<double>& all, int begin, int count) {
  return {all.begin() + begin, all.begin() + begin + count};
}

TEST(AsyncSave, HoldsTheMomentItWasAskedForWhileTrainingGoesOn) {
  const TemporaryFolder folder;
  const Outcome wanted = plain_run(kSteps);
  held = true;
  const auto outcomes = run_ranks([&](comm::World& world, engine::Engine& engine, Outcome& out) {
    train(engine, 3, out);
    engine.save_checkpoint(folder.path());
    // Nothing can be on the disk yet, and three more steps change every weight.
    train(engine, 3, out);
    EXPECT_TRUE(fs::exists(folder / "global_step3.tmp"));
    EXPECT_FALSE(fs::exists(folder / "global_step3"));
    world.all().barrier().wait();
    held = false;
    // The calls that follow commit it by themselves.
    int calls = 0;
    for (std::int64_t committed = 0; committed == 0; ++calls) {
      ASSERT_LT(calls, 20000);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      engine.eval_batch(*mlp_samples(16));
      committed = world.rank() == 0 && fs::exists(folder / "latest") ? 1 : 0;
      world.all().all_reduce_wait(std::span(&committed, 1), comm::ReduceOp::kMax);
    }
    train(engine, kSteps - 6, out);
    engine.close();
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.losses, wanted.losses);
  const Resumed resumed = resume(folder.path(), kSteps - 3);
  EXPECT_EQ(resumed.tag, "global_step3");
  EXPECT_EQ(resumed.step, 3);
  EXPECT_EQ(resumed.losses, part(wanted.losses, 3, kSteps - 3));
}

TEST(AsyncSave, CloseAndTheNextSaveAndALoadWaitForIt) {
  const TemporaryFolder folder;
  run_ranks([&](comm::World&, engine::Engine& engine, Outcome& out) {
    train(engine, 1, out);
    engine.save_checkpoint(folder.path());
    engine.save_checkpoint(folder.path(), "again");
    EXPECT_TRUE(fs::exists(folder / "global_step1"));
    train(engine, 1, out);
    EXPECT_EQ(engine.load_checkpoint(folder.path()).tag, "again");
    EXPECT_EQ(engine.global_steps(), 1);
    engine.save_checkpoint(folder.path(), "once more");
    engine.finish_save();
    EXPECT_TRUE(fs::exists(folder / "once more"));
    train(engine, 1, out);
    engine.save_checkpoint(folder.path());
    engine.save_checkpoint(folder.path(), "at once", {.async = false});
    EXPECT_TRUE(fs::exists(folder / "global_step2"));
    EXPECT_TRUE(fs::exists(folder / "at once"));
    engine.save_checkpoint(folder.path(), "last");
    engine.close();
  });
  const Resumed resumed = resume(folder.path(), 1);
  EXPECT_EQ(resumed.tag, "last");
  EXPECT_EQ(resumed.step, 2);
}

TEST(AsyncSave, AFailureIsThrownByTheNextCallsOnAllRanks) {
  const TemporaryFolder folder;
  const Outcome wanted = plain_run(kSteps);
  const auto outcomes = run_ranks([&](comm::World& world, engine::Engine& engine, Outcome& out) {
    train(engine, 2, out);
    engine.save_checkpoint(folder.path(), "good");
    engine.finish_save();
    train(engine, 1, out);
    fails_for = "bad.tmp/layer_05";
    engine.save_checkpoint(folder.path(), "bad");
    // A step that throws has done nothing.
    while (engine.global_steps() < kSteps) {
      const std::int64_t before = engine.global_steps();
      const std::string error = thrown_by([&] { train(engine, 1, out); });
      if (error.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        continue;
      }
      EXPECT_EQ(out.error, "") << "it is thrown once";
      EXPECT_EQ(engine.global_steps(), before);
      out.error = error;
    }
    if (out.error.empty()) out.error = thrown_by([&] { engine.finish_save(); });
    world.all().barrier().wait();
    fails_for = nullptr;
    EXPECT_FALSE(fs::exists(folder / "bad"));
    EXPECT_FALSE(fs::exists(folder / "bad.tmp"));
    EXPECT_EQ(engine.load_checkpoint(folder.path()).tag, "good");
    engine.save_checkpoint(folder.path(), "bad");  // the way is free again
    engine.close();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.losses, wanted.losses);
    EXPECT_EQ(outcome.error, outcomes[0].error);
    for (const char* text : {"layer_05-model_00-model_states.safetensors] cannot sync: No space "
                             "left on device",
                             "nothing was saved"}) {
      EXPECT_NE(outcome.error.find(text), std::string::npos) << outcome.error;
    }
  }
  EXPECT_EQ(resume(folder.path(), 1).tag, "bad");
}

TEST(AsyncSave, EveryCallThatWaitsThrowsTheFailure) {
  using Call = std::function<void(engine::Engine&, const fs::path&)>;
  const std::vector<Call> calls = {
      [](engine::Engine& engine, const fs::path&) { engine.finish_save(); },
      [](engine::Engine& engine, const fs::path& to) { engine.save_checkpoint(to, "next"); },
      [](engine::Engine& engine, const fs::path& from) { engine.load_checkpoint(from, "good"); },
      [](engine::Engine& engine, const fs::path&) { engine.close(); }};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE("call " + std::to_string(i));
    const TemporaryFolder folder;
    const auto outcomes = run_ranks([&](comm::World& world, engine::Engine& engine, Outcome& out) {
      engine.save_checkpoint(folder.path(), "good");
      engine.finish_save();
      train(engine, 1, out);
      fails_for = i % 2 == 0 ? "bad.tmp/layer_03" : "bad.tmp/manifest.json";
      engine.save_checkpoint(folder.path(), "bad");
      out.error = thrown_by([&] { calls[i](engine, folder.path()); });
      world.all().barrier().wait();
      fails_for = nullptr;
      EXPECT_EQ(engine.global_steps(), 1);
      // Closed it is in any case.
      const std::string later = thrown_by([&] { engine.close(); });
      EXPECT_EQ(later.find("it was closed") != std::string::npos, i == 3) << later;
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.error, outcomes[0].error);
      EXPECT_NE(outcome.error.find("No space left on device"), std::string::npos) << outcome.error;
    }
    EXPECT_FALSE(fs::exists(folder / "bad"));
    EXPECT_FALSE(fs::exists(folder / "next"));
    EXPECT_EQ(resume(folder.path(), 1).tag, "good");
  }
}

TEST(AsyncSave, AnEngineThatIsNotClosedGivesItUp) {
  const TemporaryFolder folder;
  run_ranks([&](comm::World& world, engine::Engine& engine, Outcome& out) {
    engine.save_checkpoint(folder.path(), "good");
    engine.finish_save();
    train(engine, 1, out);
    engine.save_checkpoint(folder.path(), "lost");
    world.all().barrier().wait();
  });
  EXPECT_FALSE(fs::exists(folder / "lost"));
  EXPECT_EQ(resume(folder.path(), 1).tag, "good");
  run_ranks([&](comm::World&, engine::Engine& engine, Outcome& out) {
    train(engine, 1, out);
    engine.save_checkpoint(folder.path(), "lost");
    engine.close();
  });
  EXPECT_EQ(resume(folder.path(), 1).tag, "lost");
  EXPECT_FALSE(fs::exists(folder / "lost.tmp"));
}

// Lets the threads that write go on when the last rank has come here.
struct LastLetsGo {
  std::atomic<int>& here;
  ~LastLetsGo() {
    if (++here == kRun.ranks()) held = false;
  }
};

TEST(AsyncSave, AFailureOfARankDoesNotWaitForIt) {
  const TemporaryFolder folder;
  held = true;
  std::atomic<int> ended = 0;
  const std::string error = thrown_by([&] {
    run_ranks([&](comm::World& world, engine::Engine& engine, Outcome& out) {
      const LastLetsGo guard{ended};  // each rank comes there while the disk is still held
      train(engine, 1, out);
      engine.save_checkpoint(folder.path(), "lost");
      if (world.rank() == 1) {
        world.abort({.rank = 1, .message = "the trainer fails"});
        throw std::runtime_error("the trainer fails");
      }
      train(engine, 1000, out);
    });
  });
  EXPECT_NE(error.find("the trainer fails"), std::string::npos) << error;
  EXPECT_EQ(ended, kRun.ranks());
  EXPECT_FALSE(fs::exists(folder / "lost"));
}

TEST(AsyncSave, MustBeTheSameOnAllRanks) {
  const TemporaryFolder folder;
  const auto outcomes = run_ranks([&](comm::World& world, engine::Engine& engine, Outcome& out) {
    out.error = thrown_by(
        [&] { engine.save_checkpoint(folder.path(), "t", {.async = world.rank() == 0}); });
    engine.close();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_NE(outcome.error.find("the ranks do not agree on the options"), std::string::npos)
        << outcome.error;
  }
  EXPECT_FALSE(fs::exists(folder / "t.tmp"));
}

}  // namespace
}  // namespace penstock::testing
