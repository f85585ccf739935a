// The power is lost at every operation of a save, with every kind of disk: what loads afterwards is
// the old or the new checkpoint, never a mixture, and the next save works.
#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/pending_save.h"
#include "checkpoint/publish.h"
#include "comm/error.h"
#include "comm/world.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;
using penstock::testing::PowerLost;
using penstock::testing::Survivors;

struct Scenario {
  const char* name;
  int ranks;
  std::string tag;  // saved while "old" holds version 1 and latest names it
  int keep_last;
  bool beside = false;  // written by a PendingSave
};

std::unique_ptr<MemoryFileSystem> disk_before(const Scenario& scenario) {
  auto files = std::make_unique<MemoryFileSystem>();
  save_version(*files, 1, "/ckpt", "older", 0);
  save_version(*files, scenario.ranks, "/ckpt", "old", 1);
  files->forget_operations();
  return files;
}

// Returns false when the power was lost on the way.
bool save_new(MemoryFileSystem& files, const Scenario& scenario) {
  try {
    run_ranks(scenario.ranks, [&](comm::World& world) {
      SaveRequest request = request_of(world, "/ckpt", scenario.tag, 2);
      request.keep_last = scenario.keep_last;
      if (scenario.beside) {
        PendingSave(world, request, files).finish();
      } else {
        save(world, request, files);
      }
    });
    return true;
  } catch (const PowerLost&) {
  } catch (const comm::PeerLost&) {  // a rank that saw another one end
  }
  return false;
}

struct Outcome {
  std::set<int> loaded;    // versions that were found without a tag
  int new_by_name = 0;     // how often the new tag could be loaded
  int new_incomplete = 0;  // how often it could not
};

void check_disk(MemoryFileSystem& disk, const Scenario& scenario, Outcome& outcome) {
  const int loaded = load_version(disk, 1, "/ckpt");
  EXPECT_TRUE(loaded == 1 || loaded == 2) << loaded;
  outcome.loaded.insert(loaded);
  for (const std::string& tag : complete_tags(disk, "/ckpt")) {
    const int version = load_version(disk, 1, "/ckpt", tag);
    const int expected = tag == "older" ? 0 : tag == "old" ? 1 : 2;
    EXPECT_TRUE(version == expected || (tag == scenario.tag && version == 2)) << tag;
  }
  const std::string error = load_error(disk, 1, "/ckpt", scenario.tag);
  if (error == "nothing was thrown") {
    ++outcome.new_by_name;
  } else {
    ++outcome.new_incomplete;
    EXPECT_TRUE(error.find("is incomplete: missing manifest.json") != std::string::npos ||
                error.find("does not exist") != std::string::npos)
        << error;
  }
}

Outcome lose_power_everywhere(const Scenario& scenario) {
  Outcome outcome;
  const auto trial = disk_before(scenario);
  EXPECT_TRUE(save_new(*trial, scenario));
  const std::size_t operations = trial->operations().size();
  EXPECT_GT(operations, 40u);
  for (std::size_t i = 0; i <= operations; ++i) {
    const auto files = disk_before(scenario);
    files->lose_power_at(i);
    EXPECT_EQ(save_new(*files, scenario), i == operations);
    const std::vector<std::string> done = files->operations();
    SCOPED_TRACE(std::to_string(i) + ": lost after " + (done.empty() ? "nothing" : done.back()));
    for (int disk = 0; disk < 8; ++disk) {
      const Survivors survivors = disk == 0   ? Survivors::kNone
                                  : disk == 1 ? Survivors::kAll
                                  : disk < 4  ? Survivors::kPrefix
                                              : Survivors::kAny;
      SCOPED_TRACE("disk " + std::to_string(disk));
      const auto after = files->after_power_loss(survivors, 100 * i + static_cast<unsigned>(disk));
      check_disk(*after, scenario, outcome);
      if (i == operations) {
        EXPECT_EQ(load_version(*after, 1, "/ckpt"), 2);
      }
      if (disk % 3 == 0) {
        EXPECT_TRUE(save_new(*after, scenario));
        EXPECT_EQ(load_version(*after, 2, "/ckpt"), 2);
      }
    }
  }
  return outcome;
}

TEST(PowerLoss, ANewTagIsThereOrNot) {
  for (const int ranks : {1, 3}) {
    const Outcome outcome = lose_power_everywhere({"new tag", ranks, "new", 0});
    EXPECT_EQ(outcome.loaded, (std::set<int>{1, 2}));
    EXPECT_GT(outcome.new_by_name, 0);
    EXPECT_GT(outcome.new_incomplete, 0);
  }
}

TEST(PowerLoss, AnExistingTagIsOldOrNew) {
  for (const int ranks : {1, 3}) {
    const Outcome outcome = lose_power_everywhere({"same tag", ranks, "old", 0});
    EXPECT_EQ(outcome.loaded, (std::set<int>{1, 2}));
    EXPECT_EQ(outcome.new_incomplete, 0);
  }
}

TEST(PowerLoss, IsTheSameBesideTheTraining) {
  const Outcome fresh = lose_power_everywhere({"new tag", 2, "new", 0, true});
  EXPECT_EQ(fresh.loaded, (std::set<int>{1, 2}));
  EXPECT_GT(fresh.new_incomplete, 0);
  const Outcome same = lose_power_everywhere({"same tag", 1, "old", 0, true});
  EXPECT_EQ(same.loaded, (std::set<int>{1, 2}));
  EXPECT_EQ(same.new_incomplete, 0);
}

TEST(PowerLoss, RetentionNeverLeavesHalfACheckpoint) {
  const Outcome outcome = lose_power_everywhere({"retention", 2, "new", 1});
  EXPECT_EQ(outcome.loaded, (std::set<int>{1, 2}));
}

TEST(PowerLoss, AKillAndThenALossOfPower) {
  const Scenario scenario{"killed first", 1, "old", 0};
  const auto trial = disk_before(scenario);
  ASSERT_TRUE(save_new(*trial, scenario));
  const std::vector<std::string> all = trial->operations();
  Outcome outcome;
  // Kills around the renaming of the directories, whose effects are then not yet durable.
  const auto renamed = static_cast<std::size_t>(
      std::find(all.begin(), all.end(), "rename /ckpt/old /ckpt/old.old") - all.begin());
  ASSERT_LT(renamed + 5, all.size());
  for (std::size_t kill = renamed - 2; kill < renamed + 5; ++kill) {
    for (std::size_t loss = 0; loss < all.size() + 10; ++loss) {
      const auto files = disk_before(scenario);
      files->lose_power_at(kill);
      ASSERT_FALSE(save_new(*files, scenario));
      files->restart_process();
      files->lose_power_at(loss);
      save_new(*files, scenario);
      SCOPED_TRACE(std::to_string(kill) + ", " + std::to_string(loss));
      check_disk(*files->after_power_loss(Survivors::kAny, 1000 * kill + loss), scenario, outcome);
      check_disk(*files->after_power_loss(Survivors::kNone), scenario, outcome);
    }
  }
  EXPECT_EQ(outcome.loaded, (std::set<int>{1, 2}));
  EXPECT_EQ(outcome.new_incomplete, 0);
}

TEST(PowerLoss, ASecondLossOverTheDebrisOfTheFirst) {
  const Scenario scenario{"twice", 1, "old", 0};
  const auto trial = disk_before(scenario);
  ASSERT_TRUE(save_new(*trial, scenario));
  const std::size_t operations = trial->operations().size();
  Outcome outcome;
  for (std::size_t first = 0; first < operations; first += 3) {
    const auto files = disk_before(scenario);
    files->lose_power_at(first);
    ASSERT_FALSE(save_new(*files, scenario));
    for (std::size_t second = 1; second < operations; second += 5) {
      const auto after = files->after_power_loss(Survivors::kAny, first);
      after->lose_power_at(second);
      save_new(*after, scenario);
      SCOPED_TRACE(std::to_string(first) + ", " + std::to_string(second));
      check_disk(*after->after_power_loss(Survivors::kAny, second), scenario, outcome);
    }
  }
  EXPECT_EQ(outcome.new_incomplete, 0);
}

}  // namespace
}  // namespace penstock::checkpoint::testing
