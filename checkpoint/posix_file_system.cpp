#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/file_system.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

// Opening a pipe would wait for its other end; to files it makes no difference.
constexpr int kNoWait = O_NONBLOCK | O_CLOEXEC;

[[noreturn]] void fail(const fs::path& path, const char* action, int error) {
  throw FileError("[" + path.string() + "] cannot " + action + ": " +
                  std::generic_category().message(error));
}

FileKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  return S_ISDIR(mode) ? FileKind::kDirectory : FileKind::kOther;
}

// Calls a function that sets errno again while it is interrupted by signals.
template <class Fn>
auto retry(Fn&& fn) {
  auto result = fn();
  while (result < 0 && errno == EINTR) result = fn();
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

  // The bytes of the file that is open, which must be one.
  std::uint64_t require_file(const fs::path& path) const {
    struct stat status {};
    if (::fstat(fd_, &status) < 0) fail(path, "stat", errno);
    if (!S_ISREG(status.st_mode)) {
      throw FileError("[" + path.string() + "] " + std::string(name_of(kind_of(status.st_mode))) +
                      "; expected a file");
    }
    return static_cast<std::uint64_t>(status.st_size);
  }

 private:
  int fd_;
};

class PosixWriter : public FileWriter {
 public:
  explicit PosixWriter(const fs::path& path)
      : path_(path), file_(retry([&] {
          return ::open(path.c_str(), kNoWait | O_WRONLY | O_CREAT | O_TRUNC, 0666);
        })) {
    if (file_.get() < 0) fail(path_, "create", errno);
    (void)file_.require_file(path_);
  }

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = retry([&] { return ::write(file_.get(), bytes.data(), bytes.size()); });
      if (n < 0) fail(path_, "write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      written_ += n;
    }
    // The disk begins now, not when sync() waits for it. A hint: errors are sync()'s to tell.
    if (written_ - begun_ < kAhead) return;
    (void)::sync_file_range(file_.get(), begun_, written_ - begun_, SYNC_FILE_RANGE_WRITE);
    begun_ = written_;
  }

  void sync() override {
    if (retry([&] { return ::fsync(file_.get()); }) < 0) fail(path_, "sync", errno);
  }

  void close() override {
    // After EINTR the descriptor is gone on Linux: closing again could close another file.
    if (::close(file_.release()) < 0 && errno != EINTR) fail(path_, "close", errno);
  }

 private:
  static constexpr off_t kAhead = off_t{8} << 20;

  fs::path path_;
  Descriptor file_;
  off_t written_ = 0;
  off_t begun_ = 0;  // bytes that the disk was asked to begin with
};

class PosixReader : public FileReader {
 public:
  explicit PosixReader(const fs::path& path)
      : path_(path), file_(retry([&] { return ::open(path.c_str(), kNoWait | O_RDONLY); })) {
    if (file_.get() < 0) fail(path_, "open", errno);
    size_ = file_.require_file(path_);
  }

  std::uint64_t size() const override { return size_; }

  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    while (!bytes.empty()) {
      const ssize_t n = retry([&] {
        return ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      });
      if (n < 0) fail(path_, "read", errno);
      if (n == 0) {
        throw FileError("[" + path_.string() + "] ends at byte " + std::to_string(offset) + "; " +
                        std::to_string(bytes.size()) + " more were expected");
      }
      offset += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

 private:
  fs::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
};

class PosixFileSystem : public FileSystem {
 public:
  std::unique_ptr<FileWriter> create(const fs::path& path) override {
    return std::make_unique<PosixWriter>(path);
  }

  std::unique_ptr<FileReader> open(const fs::path& path) override {
    return std::make_unique<PosixReader>(path);
  }

  FileKind kind(const fs::path& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return kind_of(status.st_mode);
    if (errno != ENOENT && errno != ENOTDIR) fail(path, "stat", errno);
    return FileKind::kMissing;
  }

  std::vector<std::string> list(const fs::path& directory) override {
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator entry(directory, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) fail(directory, "list", error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  void make_directory(const fs::path& directory) override {
    if (::mkdir(directory.c_str(), 0777) < 0) fail(directory, "make the directory", errno);
  }

  void rename(const fs::path& from, const fs::path& to) override {
    if (::rename(from.c_str(), to.c_str()) < 0) {
      fail(from, ("rename to " + to.string()).c_str(), errno);
    }
  }

  void remove_all(const fs::path& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail(path, "remove", error.value());
  }

  void sync_directory(const fs::path& directory) override {
    const Descriptor file(
        retry([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (file.get() < 0) fail(directory, "open", errno);
    // Some network file systems make entries durable by themselves and know no such call.
    if (retry([&] { return ::fsync(file.get()); }) < 0 && errno != EINVAL && errno != ENOTSUP) {
      fail(directory, "sync", errno);
    }
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem file_system;  // has no state
  return file_system;
}

}  // namespace penstock::checkpoint
