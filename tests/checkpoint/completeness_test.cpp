// What counts as a complete checkpoint: every file with its size, for lists, errors and retention
// alike. And what is left behind by saves that were cut short.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/debris.h"
#include "checkpoint/inspect.h"
#include "checkpoint/publish.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;
using Names = std::vector<std::string>;

constexpr const char* kWeights = "layer_01-model_00-model_states.safetensors";

class Completeness : public ::testing::Test {
 protected:
  Completeness() {
    save_version(files_, 2, "/ckpt", "early", 5);
    save_version(files_, 2, "/ckpt", "late", 6);
  }
  std::string path(const std::string& tag, const std::string& file) const {
    return "/ckpt/" + tag + "/" + file;
  }
  void copy(const std::string& from, const std::string& to) {
    files_.make_directory("/ckpt/" + to);
    for (const std::string& name : files_.list("/ckpt/" + from)) {
      put_bytes(files_, path(to, name), get_bytes(files_, path(from, name)));
    }
  }
  // Of the tag, as summarize() tells it.
  TagSummary summary_of(const std::string& tag) {
    for (TagSummary& summary : summarize("/ckpt", files_).tags) {
      if (summary.name == tag) return summary;
    }
    ADD_FAILURE() << tag << " is not listed";
    return {};
  }

  MemoryFileSystem files_;
};

TEST_F(Completeness, NeedsEveryFileWithItsSize) {
  ASSERT_EQ(complete_tags(files_, "/ckpt"), (Names{"early", "late"}));
  const std::string weights = get_bytes(files_, path("early", kWeights));
  put_bytes(files_, path("early", kWeights), weights.substr(1));
  EXPECT_EQ(complete_tags(files_, "/ckpt"), Names{"late"});
  TagSummary early = summary_of("early");
  EXPECT_EQ(early.state, TagState::kDamaged);
  const std::string size = std::to_string(weights.size());
  EXPECT_EQ(early.faults, Names{"[" + path("early", kWeights) + "] has " +
                                std::to_string(weights.size() - 1) + " bytes; expected " + size});

  files_.remove_all(path("early", kWeights));
  EXPECT_EQ(complete_tags(files_, "/ckpt"), Names{"late"});
  EXPECT_EQ(summary_of("early").faults, Names{"[" + path("early", kWeights) + "] is missing"});
  files_.make_directory(path("early", kWeights));
  EXPECT_EQ(summary_of("early").faults, Names{"[" + path("early", kWeights) + "] is a directory"});
  files_.remove_all(path("early", kWeights));
  put_bytes(files_, path("early", kWeights), weights);
  EXPECT_EQ(complete_tags(files_, "/ckpt"), (Names{"early", "late"}));
  EXPECT_EQ(summary_of("early").state, TagState::kComplete);
}

TEST_F(Completeness, NeedsEngineJson) {
  files_.remove_all(path("early", "engine.json"));
  EXPECT_EQ(complete_tags(files_, "/ckpt"), Names{"late"});
  ASSERT_EQ(summary_of("early").faults.size(), 1u);
  EXPECT_EQ(summary_of("early").faults[0],
            "[/ckpt/early] is incomplete: missing engine.json; complete tags here: late");
}

TEST_F(Completeness, OfWhatIsLoadedWithoutATagIsSaid) {
  EXPECT_EQ(summarize("/ckpt", files_).latest_fault, "");
  files_.remove_all(path("late", kWeights));
  EXPECT_EQ(summarize("/ckpt", files_).latest_fault, "`latest` names late, which is damaged");
}

TEST_F(Completeness, OfAReplacedTagCountsOnceItIsLoaded) {
  copy("early", "late.old");
  files_.remove_all(path("late.old", kWeights));
  EXPECT_EQ(summary_of("late.old").faults, Names{}) << "nobody loads it";
  files_.remove_all("/ckpt/late");
  EXPECT_EQ(summary_of("late.old").state, TagState::kReplaced);
  EXPECT_EQ(summary_of("late.old").faults,
            Names{"[" + path("late.old", kWeights) + "] is missing"});
  EXPECT_NE(summarize("/ckpt", files_).latest_fault, "");
}

// Else a checkpoint that cannot be loaded would take the place of one that can.
TEST_F(Completeness, DecidesWhatRetentionCountsAndRemoves) {
  files_.remove_all(path("late", kWeights));
  Names warnings;
  run_ranks(2, [&](comm::World& world) {
    SaveRequest request = request_of(world, "/ckpt", "new", 7);
    request.keep_last = 2;
    SaveResult result = save(world, request, files_);
    if (world.rank() == 0) warnings = std::move(result.warnings);
  });
  EXPECT_EQ(files_.list("/ckpt"), (Names{"early", "late", "latest", "new"}));
  EXPECT_EQ(warnings, Names{"[" + path("late", kWeights) +
                            "] is missing; keep_last does not count late, which is not removed "
                            "either"});
  EXPECT_EQ(load_version(files_, 2, "/ckpt", "early"), 5);
}

TEST_F(Completeness, ATensorsFileThatIsADirectoryIsSaidByTheLoad) {
  files_.remove_all(path("late", kWeights));
  files_.make_directory(path("late", kWeights));
  const std::string error = load_error(files_, 2, "/ckpt");
  EXPECT_NE(error.find("[" + path("late", kWeights) + "] is a directory; it holds tensors"),
            std::string::npos)
      << error;
}

// --- what saves that were cut short leave

TEST_F(Completeness, DebrisIsWhatNoLoadNeeds) {
  copy("late", "gone.tmp");
  copy("early", "late.old");
  copy("early", "other.old");  // stands for "other"
  put_bytes(files_, "/ckpt/latest.tmp", "la");
  files_.make_directory("/ckpt/mine.tmp");
  put_bytes(files_, "/ckpt/mine.tmp/notes", "mine");
  put_bytes(files_, "/ckpt/text.tmp", "mine");
  EXPECT_EQ(remove_debris("/ckpt", files_), (Names{"gone.tmp", "late.old", "latest.tmp"}));
  EXPECT_EQ(files_.list("/ckpt"),
            (Names{"early", "late", "latest", "mine.tmp", "other.old", "text.tmp"}));
  EXPECT_EQ(load_version(files_, 2, "/ckpt", "other"), 5);
  EXPECT_EQ(load_version(files_, 2, "/ckpt"), 6);
  EXPECT_EQ(remove_debris("/ckpt", files_), Names{});
  EXPECT_EQ(remove_debris("/none", files_), Names{});
}

TEST_F(Completeness, WhatIsReplacedStaysWhileTheNewOneIsDamaged) {
  copy("early", "late.old");
  files_.remove_all(path("late", kWeights));
  EXPECT_EQ(remove_debris("/ckpt", files_), Names{});
}

// --- things that are no files

class NoFiles : public ::testing::Test {
 protected:
  NoFiles() { save_version(posix_file_system(), 1, folder_.path(), "t", 5); }
  void make_pipe(const std::string& name) {
    std::filesystem::remove(folder_ / name);
    ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
  }
  std::string error() { return load_error(posix_file_system(), 1, folder_.path()); }

  const TemporaryFolder folder_;
};

// Opened like a file, a pipe would be waited for until somebody writes into it.
TEST_F(NoFiles, InThePlaceOfDataAreRefused) {
  make_pipe(std::string("t/") + kWeights);
  const std::string says =
      (folder_ / "t" / kWeights).string() + "] is neither a file nor a directory";
  EXPECT_NE(error().find(says), std::string::npos) << error();
  const DirectorySummary summary = summarize(folder_.path());
  ASSERT_EQ(summary.tags.size(), 1u);
  EXPECT_EQ(summary.tags[0].faults, Names{"[" + says});
}

TEST_F(NoFiles, InThePlaceOfTextsAreRefused) {
  make_pipe("t/manifest.json");
  EXPECT_NE(error().find("missing manifest.json, which is neither a file nor a directory"),
            std::string::npos)
      << error();
  make_pipe("latest");
  EXPECT_NE(error().find("latest] is neither a file nor a directory; expected a file"),
            std::string::npos)
      << error();
}

TEST_F(NoFiles, AreNotWrittenInto) {
  make_pipe("latest.tmp");
  EXPECT_THROW(save_version(posix_file_system(), 1, folder_.path(), "u", 6), FileError);
  EXPECT_EQ(load_version(posix_file_system(), 1, folder_.path()), 5);
  EXPECT_EQ(load_version(posix_file_system(), 1, folder_.path(), "u"), 6);
}

}  // namespace
}  // namespace penstock::checkpoint::testing
