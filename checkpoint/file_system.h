// The few file operations that checkpoints are made of, behind an interface, so that tests can fail
// or "lose power" at each one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/error.h"

namespace penstock::checkpoint {

// A file being written from its start. Without close() the content is undefined; the destructor
// only gives the handle back.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Appends all bytes.
  virtual void write(std::span<const std::byte> bytes) = 0;
  // Waits until everything written is on the disk.
  virtual void sync() = 0;
  virtual void close() = 0;

 protected:
  FileWriter() = default;
};

// An open file. Reads do not move any position, so one reader may serve several threads.
class FileReader {
 public:
  virtual ~FileReader() = default;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // Bytes when it was opened.
  virtual std::uint64_t size() const = 0;
  // Fills bytes from the offset; throws when the file ends before that.
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) const = 0;

 protected:
  FileReader() = default;
};

enum class FileKind : std::uint8_t {
  kMissing,
  kFile,
  kDirectory,
  kOther  // a pipe, a socket, a device
};
// "is missing", "is a file", "is a directory", "is neither a file nor a directory".
std::string_view name_of(FileKind kind);

// All calls throw FileError naming the path and the system's reason. Calls may come from several
// threads (ranks of one process), as long as they do not concern the same file.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  // A new file; an existing one is emptied.
  virtual std::unique_ptr<FileWriter> create(const std::filesystem::path& path) = 0;
  // Neither this nor create() takes, or waits for, anything but a file.
  virtual std::unique_ptr<FileReader> open(const std::filesystem::path& path) = 0;
  // kMissing also when a parent is missing; throws when the question cannot be answered.
  virtual FileKind kind(const std::filesystem::path& path) = 0;
  // Names in a directory, sorted.
  virtual std::vector<std::string> list(const std::filesystem::path& directory) = 0;
  // The parent must exist, the directory must not.
  virtual void make_directory(const std::filesystem::path& directory) = 0;
  // Replaces a file at `to`; a directory at `to` is an error. Atomic.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  // A file, or a directory with all that is in it; links are not followed. Nothing happens when the
  // path is missing.
  virtual void remove_all(const std::filesystem::path& path) = 0;
  // Makes creations, renames and removals inside the directory survive a loss of power.
  virtual void sync_directory(const std::filesystem::path& directory) = 0;

 protected:
  FileSystem() = default;
};

// The operating system's files.
FileSystem& posix_file_system();

// Made of the above. read_text refuses files of more than `most` bytes.
std::string read_text(FileSystem& file_system, const std::filesystem::path& path,
                      std::uint64_t most = std::uint64_t{1} << 30);
// Writes, syncs and closes.
void write_text(FileSystem& file_system, const std::filesystem::path& path,
                const std::string& text);
// With missing parents, each made durable in its own parent. Existing directories are left alone.
void make_directories(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace penstock::checkpoint
