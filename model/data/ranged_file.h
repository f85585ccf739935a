// A file that is read by ranges, so that it may be larger than memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace penstock::model {

// Open for reading; never loaded as a whole. Errors are InvalidArgument and name the file.
class RangedFile {
 public:
  // Throws when it is not there, is not a regular file, or may not be read.
  explicit RangedFile(std::filesystem::path path);
  ~RangedFile();
  RangedFile(RangedFile&& other) noexcept;
  RangedFile& operator=(RangedFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // In bytes, when it was opened.
  std::int64_t size() const { return size_; }
  // Bytes [offset, offset + bytes.size()). Throws when a read fails, or the file has become shorter
  // than that.
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

// Throws InvalidArgument, naming the file, when its first bytes are those of gzip.
void refuse_gzip(const RangedFile& file);

}  // namespace penstock::model
