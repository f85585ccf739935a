// One contract for the real file system and the one in memory, and what the latter adds.
#include "checkpoint/file_system.h"

#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

namespace fs = std::filesystem;
using penstock::testing::MemoryFileSystem;
using penstock::testing::PowerLost;
using penstock::testing::Survivors;

// Calls the test with each file system and an empty directory of it.
void on_both(const std::function<void(FileSystem&, const fs::path&)>& test) {
  const TemporaryFolder folder;
  {
    SCOPED_TRACE("posix");
    test(posix_file_system(), folder.path());
  }
  SCOPED_TRACE("memory");
  MemoryFileSystem memory;
  memory.make_directory("/d");
  test(memory, "/d");
}

TEST(FileSystem, WritesAndReads) {
  on_both([](FileSystem& files, const fs::path& d) {
    put_bytes(files, d / "f", "hello");
    EXPECT_EQ(get_bytes(files, d / "f"), "hello");
    put_bytes(files, d / "f", "bye");
    EXPECT_EQ(get_bytes(files, d / "f"), "bye");
    EXPECT_EQ(files.open(d / "f")->size(), 3u);
    EXPECT_THROW(read_text(files, d / "f", 2), FileError);
    std::byte two[2];
    EXPECT_THROW(files.open(d / "f")->read(2, two), FileError);
    files.open(d / "f")->read(1, two);
    EXPECT_EQ(two[0], std::byte{'y'});
  });
}

TEST(FileSystem, TellsKinds) {
  on_both([](FileSystem& files, const fs::path& d) {
    put_bytes(files, d / "f", "");
    files.make_directory(d / "sub");
    EXPECT_EQ(files.kind(d / "f"), FileKind::kFile);
    EXPECT_EQ(files.kind(d / "sub"), FileKind::kDirectory);
    EXPECT_EQ(files.kind(d / "none"), FileKind::kMissing);
    EXPECT_EQ(files.kind(d / "none" / "f"), FileKind::kMissing);
    EXPECT_EQ(files.kind(d / "f" / "f"), FileKind::kMissing);
    EXPECT_EQ(files.list(d), (std::vector<std::string>{"f", "sub"}));
    EXPECT_THROW(files.list(d / "none"), FileError);
    EXPECT_THROW(files.open(d / "none"), FileError);
    EXPECT_THROW(files.open(d / "sub"), FileError);
    EXPECT_THROW(files.create(d / "none" / "f"), FileError);
    EXPECT_THROW(files.create(d / "sub"), FileError);
    EXPECT_THROW(files.make_directory(d / "sub"), FileError);
    EXPECT_NO_THROW(files.sync_directory(d));
    EXPECT_THROW(files.sync_directory(d / "none"), FileError);
  });
}

TEST(FileSystem, RenamesAndRemoves) {
  on_both([](FileSystem& files, const fs::path& d) {
    put_bytes(files, d / "f", "new");
    put_bytes(files, d / "g", "old");
    files.rename(d / "f", d / "g");
    EXPECT_EQ(get_bytes(files, d / "g"), "new");
    EXPECT_EQ(files.kind(d / "f"), FileKind::kMissing);
    EXPECT_THROW(files.rename(d / "f", d / "g"), FileError);
    make_directories(files, d / "a" / "b");
    put_bytes(files, d / "a" / "b" / "f", "x");
    make_directories(files, d / "c");
    put_bytes(files, d / "c" / "f", "y");
    EXPECT_THROW(files.rename(d / "a", d / "c"), FileError);
    files.remove_all(d / "a");
    EXPECT_EQ(files.kind(d / "a"), FileKind::kMissing);
    EXPECT_NO_THROW(files.remove_all(d / "a"));
  });
}

TEST(FileSystem, MakesMissingParents) {
  on_both([](FileSystem& files, const fs::path& d) {
    make_directories(files, d / "a" / "b" / "c");
    EXPECT_EQ(files.kind(d / "a" / "b" / "c"), FileKind::kDirectory);
    EXPECT_NO_THROW(make_directories(files, d / "a" / "b" / "c"));
    put_bytes(files, d / "f", "");
    EXPECT_THROW(make_directories(files, d / "f" / "x"), FileError);
  });
}

TEST(FileSystem, ErrorsNameThePathAndTheReason) {
  const std::string error = message<FileError>([] { posix_file_system().open("/no/such/file"); });
  EXPECT_EQ(error, "[/no/such/file] cannot open: No such file or directory");
}

TEST(FileSystem, RemovingDoesNotFollowLinks) {
  const TemporaryFolder folder;
  FileSystem& files = posix_file_system();
  make_directories(files, folder / "data");
  put_bytes(files, folder / "data" / "precious", "x");
  make_directories(files, folder / "old");
  fs::create_directory_symlink(folder / "data", folder.path() / "old" / "link");
  files.remove_all(folder / "old");
  EXPECT_EQ(files.kind(folder / "old"), FileKind::kMissing);
  EXPECT_EQ(get_bytes(files, folder / "data" / "precious"), "x");
}

TEST(MemoryFileSystem, OnlySyncedThingsSurviveForSure) {
  MemoryFileSystem files;
  files.make_directory("/d");
  files.sync_directory("/");
  put_bytes(files, "/d/kept", "kept");
  files.sync_directory("/d");
  put_bytes(files, "/d/nameless", "synced, but its name is not");
  files.create("/d/kept")->write(std::as_bytes(std::span("lost")));
  const auto least = files.after_power_loss(Survivors::kNone);
  EXPECT_EQ(get_bytes(*least, "/d/kept"), "kept");
  EXPECT_EQ(least->list("/d"), std::vector<std::string>{"kept"});
  const auto most = files.after_power_loss(Survivors::kAll);
  EXPECT_EQ(most->list("/d"), (std::vector<std::string>{"kept", "nameless"}));
  EXPECT_EQ(get_bytes(*most, "/d/kept"), std::string("lost", 5));
}

TEST(MemoryFileSystem, FailsOnceAndLosesPowerForGood) {
  MemoryFileSystem files;
  files.fail_at(1);
  EXPECT_NO_THROW(files.make_directory("/a"));
  EXPECT_THROW(files.make_directory("/b"), FileError);
  EXPECT_NO_THROW(files.make_directory("/b"));
  files.lose_power_at(3);
  EXPECT_EQ(files.list("/").size(), 2u);
  EXPECT_THROW(files.make_directory("/c"), PowerLost);
  EXPECT_THROW(files.list("/"), PowerLost);
}

}  // namespace
}  // namespace penstock::checkpoint::testing
