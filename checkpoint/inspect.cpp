#include "checkpoint/inspect.h"

#include <algorithm>
#include <tuple>

#include "checkpoint/agreement.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/publish.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

bool holds_files_of_one(FileSystem& file_system, const fs::path& directory) {
  return std::ranges::any_of(file_system.list(directory), [](const std::string& name) {
    return name == kManifestFile || name == kEngineFile || name.ends_with(".safetensors");
  });
}

TagSummary summary_of(FileSystem& file_system, const fs::path& directory, const std::string& name) {
  TagSummary summary{.name = name, .fault = "", .engine_json = ""};
  if (name.ends_with(kTemporarySuffix)) {
    summary.state = TagState::kUnfinished;
    return summary;
  }
  if (name.ends_with(kOldSuffix)) {
    summary.state = TagState::kReplaced;
    return summary;
  }
  const auto fault = failure_of([&] {
    const Reader reader = Reader::inspect(directory, name, file_system);
    summary.saved_at = reader.saved_at();
    summary.engine_json = reader.engine_json();
    for (const auto& [file, bytes] : reader.files()) summary.bytes += bytes;
  });
  if (fault) {
    summary.state = TagState::kDamaged;
    summary.fault = *fault;
  }
  return summary;
}

}  // namespace

DirectorySummary summarize(const fs::path& directory, FileSystem& file_system) {
  DirectorySummary result;
  for (const std::string& name : file_system.list(directory)) {
    if (file_system.kind(directory / name) != FileKind::kDirectory) continue;
    const bool own_name = name.ends_with(kTemporarySuffix) || name.ends_with(kOldSuffix);
    if (!own_name && !holds_files_of_one(file_system, directory / name)) continue;
    result.tags.push_back(summary_of(file_system, directory, name));
  }
  std::ranges::sort(result.tags, [](const TagSummary& a, const TagSummary& b) {
    return std::tie(a.saved_at, a.name) < std::tie(b.saved_at, b.name);
  });
  if (file_system.kind(directory / kLatestFile) == FileKind::kFile) {
    (void)failure_of([&] { result.latest = read_latest(file_system, directory); });
  }
  const auto fault =
      failure_of([&] { (void)Reader::inspect(directory, std::nullopt, file_system); });
  if (fault) result.latest_fault = *fault;
  return result;
}

}  // namespace penstock::checkpoint
