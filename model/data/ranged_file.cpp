#include "model/data/ranged_file.h"

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/error.h"

namespace penstock::model {

namespace {

[[noreturn]] void throw_unreadable(const std::filesystem::path& path, const std::string& reason) {
  throw tensor::InvalidArgument("[data] cannot read " + path.string() + ": " + reason);
}

std::string text_of(int error) {
  return std::error_code(error, std::generic_category()).message();
}

}  // namespace

RangedFile::RangedFile(std::filesystem::path path)
    // Opening a pipe would wait for its other end; to a regular file it makes no difference.
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) throw_unreadable(path_, text_of(errno));
  struct stat facts {};
  const bool known = ::fstat(descriptor_, &facts) == 0;
  if (!known || !S_ISREG(facts.st_mode)) {
    ::close(descriptor_);
    throw_unreadable(path_, "it is not a regular file");
  }
  size_ = facts.st_size;
}

RangedFile::~RangedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RangedFile::RangedFile(RangedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

void RangedFile::read(std::int64_t offset, std::span<std::uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ::ssize_t count = ::pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw_unreadable(path_, "at byte " + std::to_string(offset) + ": " + text_of(errno));
    }
    if (count == 0) {
      throw_unreadable(path_, "it ended at byte " + std::to_string(offset) + " of the " +
                                  std::to_string(size_) + " that it had when it was opened");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void refuse_gzip(const RangedFile& file) {
  std::uint8_t head[2] = {};
  if (file.size() < std::ssize(head)) return;
  file.read(0, head);
  if (head[0] != 0x1f || head[1] != 0x8b) return;
  throw tensor::InvalidArgument("[data] " + file.path().string() +
                                " is compressed; unpack it first, with gunzip or tar");
}

}  // namespace penstock::model
