#include "checkpoint/debris.h"

#include <algorithm>
#include <string_view>

#include "checkpoint/agreement.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_tag(const std::string& name) {
  return !failure_of([&] { validate_tag(name); });
}

bool is_file_of_checkpoint(const std::string& name) {
  return name == kManifestFile || name == kEngineFile || name.ends_with(".safetensors");
}

bool holds_checkpoint_files_alone(FileSystem& file_system, const fs::path& directory) {
  if (file_system.kind(directory) != FileKind::kDirectory) return false;
  return std::ranges::all_of(file_system.list(directory), is_file_of_checkpoint);
}

bool is_debris(FileSystem& file_system, const fs::path& directory, const std::string& name) {
  const std::string latest = std::string(kLatestFile) + std::string(kTemporarySuffix);
  if (name == latest) return file_system.kind(directory / name) == FileKind::kFile;
  const bool old = name.ends_with(kOldSuffix);
  if (!old && !name.ends_with(kTemporarySuffix)) return false;
  const std::string tag =
      name.substr(0, name.size() - (old ? kOldSuffix : kTemporarySuffix).size());
  if (!is_tag(tag) || !holds_checkpoint_files_alone(file_system, directory / name)) return false;
  Manifest unused;
  return !old || !incomplete(file_system, directory / tag, unused);
}

}  // namespace

std::vector<std::string> remove_debris(const fs::path& directory, FileSystem& file_system) {
  std::vector<std::string> removed;
  if (file_system.kind(directory) != FileKind::kDirectory) return removed;
  // What replaced an old one has its name for certain before that goes.
  file_system.sync_directory(directory);
  for (const std::string& name : file_system.list(directory)) {
    (void)failure_of([&] {  // what stays costs no more than its room
      if (!is_debris(file_system, directory, name)) return;
      file_system.remove_all(directory / name);
      removed.push_back(name);
    });
  }
  return removed;
}

}  // namespace penstock::checkpoint
