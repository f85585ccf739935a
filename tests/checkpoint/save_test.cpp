// Saving: what is written, what is refused on all ranks, and what errors leave behind.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;
using tensor::Tensor;
using Change = std::function<void(comm::World&, SaveRequest&)>;

TEST(Save, ComesBackOnAnyNumberOfRanks) {
  const TemporaryFolder folder;
  for (const int saving : {1, 2, 3, 6}) {  // 6: two ranks have nothing to write
    const std::string tag = "by" + std::to_string(saving);
    save_version(posix_file_system(), saving, folder / "ckpt", tag, saving);
    for (const int loading : {1, 2, 5}) {
      EXPECT_EQ(load_version(posix_file_system(), loading, folder / "ckpt"), saving);
    }
  }
  EXPECT_EQ(load_version(posix_file_system(), 2, folder / "ckpt", "by3"), 3);
}

TEST(Save, WritesTheDocumentedFiles) {
  MemoryFileSystem files;
  save_version(files, 2, "/ckpt", "step10", 1);
  EXPECT_EQ(files.list("/ckpt"), (std::vector<std::string>{"latest", "step10"}));
  EXPECT_EQ(get_bytes(files, "/ckpt/latest"), "step10\n");
  EXPECT_EQ(get_bytes(files, "/ckpt/step10/engine.json"), "{\"version\": 1}");
  const std::vector<std::string> names = files.list("/ckpt/step10");
  EXPECT_EQ(names.size(), 2u * kLayers + 2);
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(std::count(names.begin(), names.end(), model_states_file(layer, 0)));
    EXPECT_TRUE(std::count(names.begin(), names.end(), optim_states_file(layer, 0)));
  }
}

TEST(Save, CommitsInTheDocumentedOrder) {
  MemoryFileSystem files;
  files.make_directory("/ckpt");
  save_version(files, 1, "/ckpt", "t", 1);
  files.forget_operations();
  save_version(files, 1, "/ckpt", "t", 2);
  std::vector<std::string> order;
  for (const std::string& operation : files.operations()) {
    const bool of_data = operation.find("layer_") != std::string::npos;
    if (!of_data && !operation.starts_with("write") && !operation.starts_with("close")) {
      order.push_back(operation);
    }
    if (of_data && operation.starts_with("sync") && order.back() != "sync data") {
      order.push_back("sync data");
    }
  }
  // Removing the old files comes last; only the first and the last of it are of interest here.
  const auto removal = std::find(order.begin(), order.end(), "remove /ckpt/t.old/engine.json");
  ASSERT_NE(removal, order.end());
  EXPECT_EQ(order.back(), "remove /ckpt/t.old");
  EXPECT_EQ(
      std::vector<std::string>(order.begin(), removal),
      (std::vector<std::string>{
          "make_directory /ckpt/t.tmp", "sync data", "create /ckpt/t.tmp/engine.json",
          "sync /ckpt/t.tmp/engine.json", "sync_directory /ckpt/t.tmp",
          "create /ckpt/t.tmp/manifest.json", "sync /ckpt/t.tmp/manifest.json",
          "sync_directory /ckpt/t.tmp", "rename /ckpt/t /ckpt/t.old", "rename /ckpt/t.tmp /ckpt/t",
          "sync_directory /ckpt", "create /ckpt/latest.tmp", "sync /ckpt/latest.tmp",
          "rename /ckpt/latest.tmp /ckpt/latest", "sync_directory /ckpt"}));
}

TEST(Save, TellsTheBytesOfAllRanks) {
  MemoryFileSystem files;
  std::int64_t expected = 0;
  run_ranks(3, [&](comm::World& world) {
    const SaveResult result = save(world, request_of(world, "/ckpt", "t", 1), files);
    EXPECT_TRUE(result.warnings.empty());
    if (world.rank() == 0) {
      for (const std::string& name : files.list("/ckpt/t")) {
        if (name != "manifest.json") {
          expected += static_cast<std::int64_t>(get_bytes(files, "/ckpt/t/" + name).size());
        }
      }
      EXPECT_EQ(result.bytes, expected);
    }
  });
  EXPECT_GT(expected, 0);
}

// What save() says on 3 ranks, which must be the same on all; rank-dependent changes are made by
// the caller.
std::string save_error(FileSystem& files, const Change& change) {
  std::vector<std::string> texts(3);
  run_ranks(3, [&](comm::World& world) {
    SaveRequest request = request_of(world, "/ckpt", "t", 5);
    change(world, request);
    texts[static_cast<std::size_t>(world.rank())] =
        message<FileError>([&] { save(world, request, files); });
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
  return texts[0];
}

TEST(Save, WrongRequestsAreRefusedOnAllRanksBeforeAnythingIsWritten) {
  const tensor::Context context = cpu_context();
  const Tensor three = make<float>(context, {3}, {1, 2, 3});
  const auto on_rank_1 = [](const std::function<void(SaveRequest&)>& fn) -> Change {
    return [fn](comm::World& world, SaveRequest& request) {
      if (world.rank() == 1) fn(request);
    };
  };
  const auto with_piece = [&](const Piece& piece) {
    return on_rank_1([piece](SaveRequest& r) { r.files[0].pieces.push_back(piece); });
  };
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](comm::World&, SaveRequest& r) { r.tag = "a/b"; }, "all ranks: [checkpoint] the tag"},
      {[](comm::World&, SaveRequest& r) { r.keep_last = -1; }, "keep_last is -1"},
      {[](comm::World&, SaveRequest& r) { r.directory.clear(); }, "the directory is empty"},
      {[](comm::World&, SaveRequest& r) { r.engine_json = "{"; }, "rank 0: [save] engine_json"},
      {on_rank_1([](SaveRequest& r) { r.tag = "u"; }), "rank 1: tag \"u\""},
      {on_rank_1([](SaveRequest& r) { r.directory = "/other"; }),
       "rank 1: tag \"t\", directory "
       "/other"},
      {on_rank_1([](SaveRequest& r) { r.keep_last = 7; }), "keep_last 7"},
      {on_rank_1([](SaveRequest& r) { r.files[0].file = "../x.safetensors"; }), "plain name"},
      {on_rank_1([](SaveRequest& r) { r.files[0].file = "x.bin"; }), "plain name"},
      {on_rank_1([](SaveRequest& r) { r.files[0].file = model_states_file(0, 0); }),
       "layer_00-model_00-model_states.safetensors is given twice"},
      {with_piece(Piece::whole("0.bias", three)), "tensor \"0.bias\" is bf16 [6]"},
      {with_piece({"x", {4}, Region::whole({4}), three}), "tensor \"x\" is given as f32 [3]"},
      {with_piece({"x", {4}, Region::whole({4}).elements(0, 3), three}),
       "elements from 3 on are not stored"},
      {with_piece({"x", {3}, Region::whole({3}), Tensor()}), "tensor \"x\" has no data"},
      {with_piece({"x", {2}, Region::whole({3}), three}), "elements [0, 3) of a slice of [2]"}};
  for (const auto& [change, text] : cases) {
    MemoryFileSystem files;
    save_version(files, 1, "/ckpt", "before", 3);
    files.forget_operations();
    const std::string error = save_error(files, change);
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nexpected: " << text;
    EXPECT_TRUE(files.operations().empty()) << files.operations().front();
    EXPECT_EQ(load_version(files, 2, "/ckpt"), 3);
  }
}

TEST(Save, AnErrorAtAnyOperationIsToldOnAllRanksAndLeavesTheOldCheckpoint) {
  for (const std::string tag : {"t", "before"}) {  // a new tag, and over the one that latest names
    const auto request = [&](comm::World& world) { return request_of(world, "/ckpt", tag, 5); };
    MemoryFileSystem trial;
    save_version(trial, 2, "/ckpt", "before", 3);
    trial.forget_operations();
    run_ranks(2, [&](comm::World& world) { save(world, request(world), trial); });
    const std::vector<std::string> all = trial.operations();
    const std::size_t operations = all.size();
    const auto renamed = static_cast<std::size_t>(
        std::find(all.begin(), all.end(), "rename /ckpt/latest.tmp /ckpt/latest") - all.begin());
    ASSERT_GT(operations, renamed);
    ASSERT_GT(operations, 40u);
    int failures = 0;
    for (std::size_t i = 0; i < operations; ++i) {
      MemoryFileSystem files;
      save_version(files, 2, "/ckpt", "before", 3);
      files.forget_operations();
      files.fail_at(i);
      std::vector<std::string> texts(2);
      run_ranks(2, [&](comm::World& world) {
        texts[static_cast<std::size_t>(world.rank())] =
            message<FileError>([&] { save(world, request(world), files); });
      });
      const std::string failed = files.operations().at(i);
      SCOPED_TRACE(failed + ": " + texts[0]);
      EXPECT_EQ(texts[0], texts[1]);
      const int loaded = load_version(files, 2, "/ckpt");
      if (texts[0] == "nothing was thrown") {
        // What is replaced is removed after the commit; that it could not be is a warning.
        EXPECT_TRUE(failed.starts_with("remove /ckpt/before.old")) << failed;
        EXPECT_EQ(loaded, 5);
      } else {
        ++failures;
        EXPECT_NE(texts[0].find("No space left on device"), std::string::npos);
        EXPECT_NE(texts[0].find(failed), std::string::npos);
        EXPECT_TRUE(loaded == 3 || tag == "before" || i > renamed);
        EXPECT_EQ(files.kind("/ckpt/" + tag + ".tmp"), FileKind::kMissing);
        EXPECT_TRUE(loaded == 3 || texts[0].find("is complete, but") != std::string::npos);
      }
      run_ranks(2, [&](comm::World& world) { save(world, request(world), files); });
      EXPECT_EQ(load_version(files, 2, "/ckpt"), 5);
    }
    EXPECT_GT(failures, 40);
  }
}

TEST(Save, RanksThatDoNotShareTheDirectoryAreFound) {
  MemoryFileSystem here;
  MemoryFileSystem there;
  there.make_directory("/ckpt");
  there.make_directory("/ckpt/t.tmp");  // debris, so that rank 1 can write
  std::vector<std::string> texts(2);
  run_ranks(2, [&](comm::World& world) {
    MemoryFileSystem& files = world.rank() == 0 ? here : there;
    texts[static_cast<std::size_t>(world.rank())] =
        message<FileError>([&] { save(world, request_of(world, "/ckpt", "t", 1), files); });
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0].find("layer_01-model_00-model_states.safetensors] cannot open"),
            std::string::npos)
      << texts[0];
}

TEST(Save, ADirectoryThatIsNoCheckpointIsNotReplaced) {
  MemoryFileSystem files;
  make_directories(files, "/ckpt/t");
  put_bytes(files, "/ckpt/t/thesis", "mine");
  const std::string error = save_error(files, [](comm::World&, SaveRequest&) {});
  EXPECT_NE(error.find("[/ckpt/t] is in the way and is not a checkpoint"), std::string::npos)
      << error;
  EXPECT_EQ(get_bytes(files, "/ckpt/t/thesis"), "mine");
}

// A disk that keeps one rank waiting.
class SlowForOneRank final : public MemoryFileSystem {
 public:
  // From now on a directory takes long to sync on this thread.
  void slow_down() { slow_ = std::this_thread::get_id(); }
  void sync_directory(const std::filesystem::path& directory) override {
    if (std::this_thread::get_id() == slow_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    }
    MemoryFileSystem::sync_directory(directory);
  }

 private:
  std::atomic<std::thread::id> slow_;
};

TEST(Save, WaitsForASlowDiskLongerThanForAMessage) {
  const auto save_slowly = [](SlowForOneRank& files, double patience) {
    comm::run_local(3, {.timeout_seconds = 0.5}, [&](comm::World& world) {
      const comm::LongWaits waits(world, patience);
      if (world.rank() == 1) files.slow_down();
      save(world, request_of(world, "/ckpt", "t", 3), files);
      world.all().barrier().wait();
    });
  };
  SlowForOneRank files;
  EXPECT_THROW(save_slowly(files, 0.0), comm::TimedOut);
  save_slowly(files, 60.0);
  EXPECT_EQ(load_version(files, 2, "/ckpt"), 3);
}

TEST(LongWaits, AreOverWhenTheyGoOutOfScope) {
  comm::run_local(1, {.timeout_seconds = 2.0}, [](comm::World& world) {
    {
      const comm::LongWaits longer(world, 5.0);
      const comm::LongWaits shorter(world, 1.0);  // never less than the time-out
      EXPECT_EQ(world.timeout_seconds(), 5.0);
    }
    EXPECT_EQ(world.timeout_seconds(), 2.0);
  });
}

}  // namespace
}  // namespace penstock::checkpoint::testing
