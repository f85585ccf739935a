#include "engine/append_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/error.h"

namespace penstock::engine {

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      head_(std::move(other.head_)),
      file_(std::exchange(other.file_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  head_ = std::move(other.head_);
  file_ = std::exchange(other.file_, -1);
  return *this;
}

void AppendFile::append(std::string_view bytes) {
  if (file_ >= 0 && is_removed()) close();
  if (file_ < 0) open();
  add(bytes);
}

void AppendFile::close() noexcept {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void AppendFile::open() {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) fail("opened", errno);
  struct stat facts {};
  if (fstat(file_, &facts) != 0) fail("opened", errno);
  if (facts.st_size == 0) add(head_);
}

void AppendFile::add(std::string_view bytes) {
  struct stat before {};
  if (fstat(file_, &before) != 0) fail("written", errno);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      const int error = written == 0 ? ENOSPC : errno;
      // A device has no length to go back to; there is nothing more to do about it either.
      [[maybe_unused]] const int ignored = ftruncate(file_, before.st_size);
      fail("written", error);
    }
  }
}

bool AppendFile::is_removed() const {
  struct stat facts {};
  return fstat(file_, &facts) != 0 || facts.st_nlink == 0;
}

void AppendFile::fail(const char* what, int error) {
  close();
  throw tensor::Error("[monitor] " + path_.string() + " cannot be " + what + ": " +
                      std::system_category().message(error) +
                      "; check that its folder is there and writable and that there is room");
}

}  // namespace penstock::engine
