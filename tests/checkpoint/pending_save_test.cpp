// Saves beside the training: the same checkpoints as saves at once, whatever happens meanwhile.
#include "checkpoint/pending_save.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;

// What an engine does at each of its collective calls.
std::optional<SaveResult> step(comm::World& world, PendingSave& save) {
  std::int64_t ready = save.ready() ? 1 : 0;
  world.all().all_reduce_wait(std::span(&ready, 1), comm::ReduceOp::kMin);
  return ready == 1 ? save.advance() : std::nullopt;
}

SaveResult save_in_steps(comm::World& world, SaveRequest request, FileSystem& files) {
  PendingSave save(world, std::move(request), files);
  for (;;) {
    if (const auto result = step(world, save)) return *result;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Files are not created until they may be.
class HeldFileSystem final : public MemoryFileSystem {
 public:
  std::unique_ptr<FileWriter> create(const std::filesystem::path& path) override {
    while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return MemoryFileSystem::create(path);
  }
  std::atomic<bool> held = true;
};

TEST(PendingSave, WritesWhatASaveAtOnceWrites) {
  for (const int ranks : {1, 3}) {
    MemoryFileSystem at_once, beside;
    save_version(at_once, ranks, "/ckpt", "t", 4);
    std::vector<SaveResult> results(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](comm::World& world) {
      results[static_cast<std::size_t>(world.rank())] =
          save_in_steps(world, request_of(world, "/ckpt", "t", 4), beside);
    });
    EXPECT_EQ(load_version(beside, 2, "/ckpt"), 4);
    EXPECT_EQ(beside.list("/ckpt"), at_once.list("/ckpt"));
    std::int64_t bytes = 0;
    for (const std::string& name : beside.list("/ckpt/t")) {
      if (name == "manifest.json") continue;  // says when it was saved
      EXPECT_EQ(get_bytes(beside, "/ckpt/t/" + name), get_bytes(at_once, "/ckpt/t/" + name));
      bytes += static_cast<std::int64_t>(get_bytes(beside, "/ckpt/t/" + name).size());
    }
    for (const SaveResult& result : results) EXPECT_EQ(result.bytes, bytes);
  }
}

TEST(PendingSave, TheRanksGoOnWhileItWrites) {
  HeldFileSystem files;
  run_ranks(2, [&](comm::World& world) {
    PendingSave save(world, request_of(world, "/ckpt", "t", 4), files);
    EXPECT_EQ(save.tag(), "t");
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(step(world, save));
    EXPECT_FALSE(save.ready());
    EXPECT_TRUE(files.list("/ckpt/t.tmp").empty());
    world.all().barrier().wait();
    files.held = false;
    EXPECT_GT(save.finish().bytes, 0);
  });
  EXPECT_EQ(load_version(files, 1, "/ckpt"), 4);
}

TEST(PendingSave, ARequestThatIsRefusedIsRefusedAtOnce) {
  MemoryFileSystem files;
  run_ranks(2, [&](comm::World& world) {
    SaveRequest request = request_of(world, "/ckpt", "t", 4);
    if (world.rank() == 1) request.tag = "u";
    const std::string error =
        message<FileError>([&] { PendingSave(world, std::move(request), files); });
    EXPECT_NE(error.find("ranks do not see the same"), std::string::npos) << error;
  });
  EXPECT_EQ(files.kind("/ckpt"), FileKind::kMissing);
}

TEST(PendingSave, AnErrorAnywhereIsThrownEverywhereAndLeavesTheOldCheckpoint) {
  MemoryFileSystem trial;
  save_version(trial, 2, "/ckpt", "old", 1);
  trial.forget_operations();
  run_ranks(2, [&](comm::World& world) {
    save_in_steps(world, request_of(world, "/ckpt", "new", 2), trial);
  });
  const std::size_t operations = trial.operations().size();
  ASSERT_GT(operations, 40u);
  std::size_t complete = 0;
  for (std::size_t i = 0; i < operations; ++i) {
    MemoryFileSystem files;
    save_version(files, 2, "/ckpt", "old", 1);
    files.forget_operations();
    files.fail_at(i);
    std::vector<std::string> errors(2);
    run_ranks(2, [&](comm::World& world) {
      errors[static_cast<std::size_t>(world.rank())] = message<FileError>(
          [&] { save_in_steps(world, request_of(world, "/ckpt", "new", 2), files); });
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_NE(errors[0].find("No space left on device"), std::string::npos) << errors[0];
    // Only the very last steps leave it complete, which the message then says.
    const int loaded = load_version(files, 1, "/ckpt");
    if (errors[0].find("is complete") == std::string::npos) {
      EXPECT_EQ(loaded, 1) << errors[0];
      EXPECT_EQ(files.kind("/ckpt/new.tmp"), FileKind::kMissing) << errors[0];
    } else {
      ++complete;
    }
    save_version(files, 2, "/ckpt", "new", 3);
    EXPECT_EQ(load_version(files, 1, "/ckpt"), 3);
  }
  EXPECT_GT(complete, 0u);
  EXPECT_LT(complete, 8u);
}

TEST(PendingSave, ThatIsGivenUpLeavesTheOldCheckpoint) {
  MemoryFileSystem files;
  save_version(files, 2, "/ckpt", "old", 1);
  run_ranks(2, [&](comm::World& world) {
    const PendingSave save(world, request_of(world, "/ckpt", "new", 2), files);
  });
  EXPECT_EQ(load_version(files, 1, "/ckpt"), 1);
  EXPECT_EQ(files.kind("/ckpt/new"), FileKind::kMissing);
  EXPECT_EQ(files.kind("/ckpt/new.tmp"), FileKind::kDirectory);
  save_version(files, 2, "/ckpt", "new", 3);
  EXPECT_EQ(load_version(files, 1, "/ckpt"), 3);
}

TEST(PendingSave, ThatIsGivenUpWhileItIsCommittedIsComplete) {
  MemoryFileSystem files;
  run_ranks(2, [&](comm::World& world) {
    PendingSave save(world, request_of(world, "/ckpt", "new", 2), files);
    while (!save.ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    world.all().barrier().wait();
    EXPECT_FALSE(save.advance());
  });
  EXPECT_EQ(load_version(files, 1, "/ckpt"), 2);
}

}  // namespace
}  // namespace penstock::checkpoint::testing
