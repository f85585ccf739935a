// Which checkpoint is loaded: `latest`, tags, what fell back, what was removed. Never the wrong
// one, and never quietly none.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;

void expect_says(const std::string& error, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nexpected: " << text;
  }
}

class Tags : public ::testing::Test {
 protected:
  Tags() {
    save_version(files_, 2, "/ckpt", "early", 5);
    save_version(files_, 2, "/ckpt", "late", 6);
  }
  void set_latest(const std::string& text) { put_bytes(files_, "/ckpt/latest", text); }

  MemoryFileSystem files_;
};

TEST_F(Tags, TheTagThatIsAskedForIsLoaded) {
  EXPECT_EQ(load_version(files_, 3, "/ckpt", "early"), 5);
  EXPECT_EQ(load_version(files_, 3, "/ckpt", "late"), 6);
  EXPECT_EQ(load_version(files_, 3, "/ckpt"), 6);
  run_ranks(1, [&](comm::World& world) {
    const Reader reader = Reader::open(world, "/ckpt", "early", files_);
    EXPECT_EQ(reader.tag(), "early");
    EXPECT_EQ(reader.path(), "/ckpt/early");
  });
}

TEST_F(Tags, MissingLatestIsAnErrorOnAllRanks) {
  files_.remove_all("/ckpt/latest");
  expect_says(load_error(files_, 3, "/ckpt"),
              {"all ranks: [/ckpt/latest] is missing", "complete tags here: early, late",
               "expected the tag to load; give a tag", "nothing was loaded"});
  EXPECT_EQ(load_version(files_, 3, "/ckpt", "late"), 6);
}

TEST_F(Tags, LatestMustNameACheckpoint) {
  set_latest("step99\n");
  expect_says(load_error(files_, 3, "/ckpt"),
              {"all ranks: [/ckpt/step99] does not exist", "complete tags here: early, late"});
  set_latest("");
  expect_says(load_error(files_, 3, "/ckpt"), {"all ranks: [/ckpt/latest] is empty"});
  set_latest(" \r\n");
  expect_says(load_error(files_, 3, "/ckpt"), {"all ranks: [/ckpt/latest] is empty"});
  set_latest("../ckpt/late");
  expect_says(load_error(files_, 3, "/ckpt"), {"holds a slash"});
  set_latest(std::string(5000, 'x'));
  expect_says(load_error(files_, 3, "/ckpt"), {"[/ckpt/latest] has 5000 bytes"});
}

TEST_F(Tags, WhiteSpaceBehindTheTagIsNotPartOfIt) {
  for (const char* text : {"early", "early\n", "early\r\n", "early \n\n"}) {
    set_latest(text);
    EXPECT_EQ(load_version(files_, 2, "/ckpt"), 5) << text;
  }
}

TEST_F(Tags, OneRankThatCannotSeeTheDirectoryStopsAll) {
  MemoryFileSystem elsewhere;
  for (const std::optional<std::string>& tag :
       {std::optional<std::string>(), std::optional<std::string>("late")}) {
    std::vector<std::string> texts(3);
    run_ranks(3, [&](comm::World& world) {
      MemoryFileSystem& files = world.rank() == 2 ? elsewhere : files_;
      texts[static_cast<std::size_t>(world.rank())] =
          message<FileError>([&] { Reader::open(world, "/ckpt", tag, files); });
    });
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(texts[0], texts[2]);
    expect_says(texts[0],
                {"rank 2: [/ckpt] is not a directory here",
                 tag ? "looked for the checkpoint late" : "looked for the file `latest`"});
    EXPECT_EQ(texts[0].find("rank 0"), std::string::npos) << texts[0];
  }
}

TEST_F(Tags, RanksThatSeeDifferentCheckpointsStop) {
  MemoryFileSystem elsewhere;
  save_version(elsewhere, 2, "/ckpt", "late", 6);
  save_version(elsewhere, 2, "/ckpt", "early", 5);
  std::vector<std::string> texts(2);
  run_ranks(2, [&](comm::World& world) {
    MemoryFileSystem& files = world.rank() == 1 ? elsewhere : files_;
    texts[static_cast<std::size_t>(world.rank())] =
        message<FileError>([&] { Reader::open(world, "/ckpt", std::nullopt, files); });
  });
  EXPECT_EQ(texts[0], texts[1]);
  expect_says(texts[0], {"ranks do not see the same", "rank 0: /ckpt/late", "rank 1: /ckpt/early"});
}

TEST_F(Tags, AnUnfinishedSaveIsIncomplete) {
  files_.rename("/ckpt/late", "/ckpt/late.tmp");  // as if the last renaming had not happened
  expect_says(load_error(files_, 2, "/ckpt", "late"),
              {"[/ckpt/late] is incomplete", "late.tmp", "complete tags here: early"});
  expect_says(load_error(files_, 2, "/ckpt"), {"[/ckpt/late] is incomplete"});
  files_.rename("/ckpt/late.tmp", "/ckpt/late");
  files_.remove_all("/ckpt/late/manifest.json");
  expect_says(load_error(files_, 2, "/ckpt"),
              {"[/ckpt/late] is incomplete: missing manifest.json", "complete tags here: early"});
  files_.remove_all("/ckpt/late/engine.json");
  expect_says(load_error(files_, 2, "/ckpt"), {"missing manifest.json, engine.json"});
  expect_says(load_error(files_, 2, "/ckpt", "late.tmp"), {"ends with .tmp or .old"});
}

TEST_F(Tags, WhatWasBeingReplacedIsLoadedUntilItIs) {
  files_.rename("/ckpt/late", "/ckpt/late.old");
  EXPECT_EQ(load_version(files_, 3, "/ckpt"), 6);
  run_ranks(1, [&](comm::World& world) {
    EXPECT_EQ(Reader::open(world, "/ckpt", "late", files_).path(), "/ckpt/late.old");
  });
  save_version(files_, 2, "/ckpt", "late", 7);
  EXPECT_EQ(load_version(files_, 3, "/ckpt"), 7);
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"early", "late", "latest"}));
}

TEST_F(Tags, ACopyMayHaveAnotherTag) {
  files_.make_directory("/ckpt/best");
  for (const std::string& name : files_.list("/ckpt/early")) {
    put_bytes(files_, "/ckpt/best/" + name, get_bytes(files_, "/ckpt/early/" + name));
  }
  EXPECT_EQ(load_version(files_, 2, "/ckpt", "best"), 5);
}

TEST_F(Tags, SavingOverDebrisWorks) {
  files_.make_directory("/ckpt/new.tmp");
  put_bytes(files_, "/ckpt/new.tmp/layer_09-model_00-model_states.safetensors", "cut off");
  put_bytes(files_, "/ckpt/new.tmp/engine.json", "{");
  put_bytes(files_, "/ckpt/latest.tmp", "ne");
  save_version(files_, 2, "/ckpt", "new", 7);
  EXPECT_EQ(load_version(files_, 2, "/ckpt"), 7);
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"early", "late", "latest", "new"}));
  EXPECT_EQ(files_.list("/ckpt/new").size(), 2u * kLayers + 2);
}

void save_keeping(FileSystem& files, const std::string& tag, int version, int keep_last) {
  run_ranks(2, [&](comm::World& world) {
    SaveRequest request = request_of(world, "/ckpt", tag, version);
    request.keep_last = keep_last;
    EXPECT_TRUE(save(world, request, files).warnings.empty());
  });
}

TEST_F(Tags, RetentionRemovesTheOldest) {
  save_keeping(files_, "a", 1, 3);
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"a", "early", "late", "latest"}));
  save_keeping(files_, "b", 2, 3);
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"a", "b", "late", "latest"}));
  save_keeping(files_, "c", 3, 1);
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"c", "latest"}));
  EXPECT_EQ(load_version(files_, 2, "/ckpt"), 3);
}

TEST_F(Tags, ASaveMayLeaveLatestAlone) {
  run_ranks(2, [&](comm::World& world) {
    SaveRequest request = request_of(world, "/ckpt", "aside", 7);
    request.save_latest = false;
    save(world, request, files_);
  });
  EXPECT_EQ(load_version(files_, 2, "/ckpt"), 6);
  EXPECT_EQ(load_version(files_, 2, "/ckpt", "aside"), 7);
}

TEST_F(Tags, RetentionLeavesWhatLatestNames) {
  set_latest("early\n");
  run_ranks(2, [&](comm::World& world) {
    SaveRequest request = request_of(world, "/ckpt", "aside", 7);
    request.save_latest = false;
    request.keep_last = 1;
    EXPECT_TRUE(save(world, request, files_).warnings.empty());
  });
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"aside", "early", "latest"}));
  EXPECT_EQ(load_version(files_, 2, "/ckpt"), 5);
}

TEST_F(Tags, RetentionLeavesNothingToFallBackTo) {
  files_.make_directory("/ckpt/early.old");  // as a save leaves it that was cut short at its end
  for (const std::string& name : files_.list("/ckpt/early")) {
    put_bytes(files_, "/ckpt/early.old/" + name, get_bytes(files_, "/ckpt/early/" + name));
  }
  save_keeping(files_, "a", 1, 1);
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"a", "latest"}));
  expect_says(load_error(files_, 2, "/ckpt", "early"), {"[/ckpt/early] does not exist"});
}

TEST_F(Tags, RetentionLeavesOtherThingsAlone) {
  files_.make_directory("/ckpt/notes");
  put_bytes(files_, "/ckpt/notes/text", "mine");
  put_bytes(files_, "/ckpt/readme", "mine");
  save_keeping(files_, "a", 1, 1);
  EXPECT_EQ(files_.list("/ckpt"), (std::vector<std::string>{"a", "latest", "notes", "readme"}));
}

TEST_F(Tags, WhatCannotBeRemovedIsAWarning) {
  std::string manifest = get_bytes(files_, "/ckpt/early/manifest.json");
  manifest[40] = '?';
  put_bytes(files_, "/ckpt/early/manifest.json", manifest);
  run_ranks(2, [&](comm::World& world) {
    SaveRequest request = request_of(world, "/ckpt", "a", 1);
    request.keep_last = 1;
    const SaveResult result = save(world, request, files_);
    EXPECT_EQ(result.warnings.size(), world.rank() == 0 ? 1u : 0u);
  });
  EXPECT_EQ(load_version(files_, 2, "/ckpt"), 1);
}

}  // namespace
}  // namespace penstock::checkpoint::testing
