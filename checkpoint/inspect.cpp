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
  TagSummary summary{.name = name, .faults = {}, .engine_json = ""};
  if (name.ends_with(kTemporarySuffix)) {
    summary.state = TagState::kUnfinished;
    return summary;
  }
  std::string tag = name;
  if (name.ends_with(kOldSuffix)) {
    summary.state = TagState::kReplaced;
    tag.resize(tag.size() - kOldSuffix.size());
    if (file_system.kind(directory / tag) != FileKind::kMissing) return summary;
  }
  const auto fault = failure_of([&] {
    const Reader reader = Reader::inspect(directory, tag, file_system);
    summary.faults = reader.faults(Check::kSizes);
    summary.saved_at = reader.saved_at();
    summary.engine_json = reader.engine_json();
    for (const auto& [file, bytes] : reader.files()) summary.bytes += bytes;
  });
  if (fault) summary.faults.push_back(*fault);
  if (!summary.faults.empty() && summary.state == TagState::kComplete) {
    summary.state = TagState::kDamaged;
  }
  return summary;
}

// Why nothing loads without a tag; empty: something does.
std::string latest_fault(FileSystem& file_system, const fs::path& directory,
                         const DirectorySummary& summary) {
  const std::string old = summary.latest + std::string(kOldSuffix);
  for (const TagSummary& tag : summary.tags) {
    const bool named = tag.name == summary.latest || tag.name == old;
    if (named && !tag.faults.empty())
      return "`latest` names " + summary.latest + ", which is damaged";
  }
  return failure_of([&] { (void)Reader::inspect(directory, std::nullopt, file_system); })
      .value_or("");
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
  result.latest_fault = latest_fault(file_system, directory, result);
  return result;
}

}  // namespace penstock::checkpoint
