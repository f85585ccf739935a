#include "checkpoint/publish.h"

#include <algorithm>
#include <utility>

#include "checkpoint/agreement.h"
#include "checkpoint/error.h"
#include "checkpoint/verify.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxLatestBytes = 4096;

fs::path with_suffix(const fs::path& directory, const std::string& tag, std::string_view suffix) {
  return directory / (tag + std::string(suffix));
}

bool has_manifest(FileSystem& file_system, const fs::path& checkpoint) {
  return file_system.kind(checkpoint / kManifestFile) == FileKind::kFile;
}

void require_all_files(FileSystem& file_system, const fs::path& directory,
                       const Manifest& manifest) {
  for (const auto& [name, facts] : manifest.files) {
    const std::uint64_t size = file_system.open(directory / name)->size();
    if (size != facts.bytes) {
      throw FileError("[" + (directory / name).string() + "] has " + std::to_string(size) +
                      " bytes here but " + std::to_string(facts.bytes) +
                      " were written; expected a directory that all ranks share");
    }
  }
}

// Moves what has the final name out of the way.
void make_room(FileSystem& file_system, const Places& places) {
  if (file_system.kind(places.complete) == FileKind::kMissing) return;
  if (!has_manifest(file_system, places.complete)) {
    throw FileError("[" + places.complete.string() +
                    "] is in the way and is not a checkpoint; remove it or use another tag");
  }
  if (file_system.kind(places.old) != FileKind::kMissing) {
    // Left by a save that was cut short; needed until the name that replaced it is durable.
    file_system.sync_directory(places.directory);
    file_system.remove_all(places.old);
  }
  file_system.rename(places.complete, places.old);
}

// Directories with a manifest, under names that are not for what is unfinished or replaced.
std::vector<std::string> tags_in(FileSystem& file_system, const fs::path& directory) {
  std::vector<std::string> tags;
  if (file_system.kind(directory) != FileKind::kDirectory) return tags;
  for (const std::string& name : file_system.list(directory)) {
    if (name.ends_with(kTemporarySuffix) || name.ends_with(kOldSuffix)) continue;
    if (has_manifest(file_system, directory / name)) tags.push_back(name);
  }
  return tags;
}

// The tags that retention removes.
std::vector<std::string> tags_beyond(FileSystem& file_system, const Places& places, int keep_last,
                                     std::vector<std::string>& warnings) {
  std::vector<std::pair<std::int64_t, std::string>> by_age;
  for (const std::string& tag : tags_in(file_system, places.directory)) {
    Manifest manifest;
    if (const auto fault = incomplete(file_system, places.directory / tag, manifest)) {
      warnings.push_back(*fault + "; keep_last does not count " + tag +
                         ", which is not removed either");
    } else {
      by_age.emplace_back(manifest.saved_at, tag);
    }
  }
  std::sort(by_age.rbegin(), by_age.rend());  // newest first
  std::string latest;
  if (file_system.kind(places.directory / kLatestFile) == FileKind::kFile) {
    latest = read_latest(file_system, places.directory);
  }
  std::vector<std::string> tags;
  for (std::size_t i = static_cast<std::size_t>(keep_last); i < by_age.size(); ++i) {
    const std::string& tag = by_age[i].second;
    if (tag != places.tag && tag != latest) tags.push_back(tag);
  }
  return tags;
}

// First takes the name away, durably, so that no half-removed checkpoint has it.
void remove_tag(FileSystem& file_system, const Places& places) {
  file_system.remove_all(places.old);
  file_system.remove_all(places.temporary);
  file_system.rename(places.complete, places.temporary);
  file_system.sync_directory(places.directory);
  file_system.remove_all(places.temporary);
}

}  // namespace

Places::Places(const fs::path& parent, const std::string& tag_name)
    : directory(parent),
      tag(tag_name),
      complete(parent / tag_name),
      temporary(with_suffix(parent, tag_name, kTemporarySuffix)),
      old(with_suffix(parent, tag_name, kOldSuffix)) {}

void publish(FileSystem& file_system, const Places& places, const Manifest& manifest) {
  require_all_files(file_system, places.temporary, manifest);
  write_text(file_system, places.temporary / kManifestFile, to_text(manifest));
  file_system.sync_directory(places.temporary);
  make_room(file_system, places);
  file_system.rename(places.temporary, places.complete);
  if (const auto failure = failure_of([&] { file_system.sync_directory(places.directory); })) {
    throw FileError(*failure + "; " + places.complete.string() +
                    " is complete, but may not survive a loss of power");
  }
}

void point_latest(FileSystem& file_system, const Places& places) {
  const fs::path temporary =
      with_suffix(places.directory, std::string(kLatestFile), kTemporarySuffix);
  write_text(file_system, temporary, places.tag + "\n");
  file_system.rename(temporary, places.directory / kLatestFile);
  file_system.sync_directory(places.directory);
}

std::vector<std::string> remove_replaced(FileSystem& file_system, const Places& places,
                                         int keep_last) {
  std::vector<std::string> warnings;
  const auto attempt = [&](auto&& fn) {
    if (auto failure = failure_of(fn)) warnings.push_back(std::move(*failure));
  };
  attempt([&] { file_system.remove_all(places.old); });
  if (keep_last == 0) return warnings;
  std::vector<std::string> tags;
  attempt([&] { tags = tags_beyond(file_system, places, keep_last, warnings); });
  for (const std::string& tag : tags) {
    attempt([&] { remove_tag(file_system, Places(places.directory, tag)); });
  }
  return warnings;
}

std::string read_latest(FileSystem& file_system, const fs::path& directory) {
  const fs::path path = directory / kLatestFile;
  std::string tag = read_text(file_system, path, kMaxLatestBytes);
  while (!tag.empty() && std::string_view(" \t\r\n").find(tag.back()) != std::string_view::npos) {
    tag.pop_back();
  }
  if (tag.empty()) throw FileError("[" + path.string() + "] is empty; expected a tag");
  return tag;
}

std::optional<std::string> incomplete(FileSystem& file_system, const fs::path& directory,
                                      Manifest& manifest) {
  return failure_of([&] {
    const fs::path path = directory / kManifestFile;
    manifest = parse_manifest(path.string(), read_text(file_system, path));
    require_none(faults_of_sizes(file_system, directory, manifest));
  });
}

std::vector<std::string> complete_tags(FileSystem& file_system, const fs::path& directory) {
  std::vector<std::string> tags = tags_in(file_system, directory);
  Manifest unused;
  std::erase_if(tags, [&](const std::string& tag) {
    return incomplete(file_system, directory / tag, unused).has_value();
  });
  return tags;
}

}  // namespace penstock::checkpoint
