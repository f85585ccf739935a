// A file that only grows, by whole records: a full disk leaves no half of one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace penstock::engine {

class AppendFile {
 public:
  AppendFile() = default;
  // A file that is empty or not there begins with `head`. Nothing is opened yet.
  AppendFile(std::filesystem::path path, std::string head)
      : path_(std::move(path)), head_(std::move(head)) {}
  ~AppendFile() { close(); }
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  // Adds all of the bytes, at once visible to readers, or throws tensor::Error and adds none. After
  // an error, and when somebody removed the file, the next call opens it anew.
  void append(std::string_view bytes);
  void close() noexcept;

 private:
  void open();
  void add(std::string_view bytes);
  bool is_removed() const;
  [[noreturn]] void fail(const char* what, int error);

  std::filesystem::path path_;
  std::string head_;
  int file_ = -1;
};

}  // namespace penstock::engine
