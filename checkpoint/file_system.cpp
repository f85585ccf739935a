#include "checkpoint/file_system.h"

#include "tensor/error.h"

namespace penstock::checkpoint {

std::string_view name_of(FileKind kind) {
  switch (kind) {
    case FileKind::kMissing:
      return "is missing";
    case FileKind::kFile:
      return "is a file";
    case FileKind::kDirectory:
      return "is a directory";
    case FileKind::kOther:
      return "is neither a file nor a directory";
  }
  return "";
}

std::string read_text(FileSystem& file_system, const std::filesystem::path& path,
                      std::uint64_t most) {
  const std::unique_ptr<FileReader> file = file_system.open(path);
  if (file->size() > most) {
    throw FileError("[" + path.string() + "] has " + std::to_string(file->size()) +
                    " bytes; expected at most " + std::to_string(most));
  }
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(FileSystem& file_system, const std::filesystem::path& path,
                const std::string& text) {
  const std::unique_ptr<FileWriter> file = file_system.create(path);
  file->write(std::as_bytes(std::span(text)));
  file->sync();
  file->close();
}

void make_directories(FileSystem& file_system, const std::filesystem::path& directory) {
  const FileKind kind = file_system.kind(directory);
  if (kind == FileKind::kDirectory) return;
  if (kind != FileKind::kMissing) {
    throw FileError("[" + directory.string() + "] " + std::string(name_of(kind)) +
                    "; expected a directory");
  }
  const std::filesystem::path parent = directory.parent_path();
  if (!parent.empty() && parent != directory) make_directories(file_system, parent);
  file_system.make_directory(directory);
  file_system.sync_directory(parent.empty() ? std::filesystem::path(".") : parent);
}

}  // namespace penstock::checkpoint
