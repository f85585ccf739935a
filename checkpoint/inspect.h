// What lies in a directory of checkpoints, for people and tools that look from outside of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace penstock::checkpoint {

enum class TagState : std::uint8_t {
  kComplete,    // manifest and engine.json are as they were saved, data files by their sizes
  kDamaged,     // cannot be loaded; see `faults`
  kUnfinished,  // "<tag>.tmp": a save that is under way, or was cut short
  kReplaced     // "<tag>.old": loads in the place of <tag> as long as that is missing, and then it
                // is looked at as if it were <tag>
};

struct TagSummary {
  std::string name;  // of the directory
  TagState state = TagState::kComplete;
  std::vector<std::string> faults;  // what is wrong with what would be loaded
  std::int64_t saved_at = 0;        // nanoseconds since 1970
  std::uint64_t bytes = 0;          // of its files, as the manifest says
  std::string engine_json;
};

struct DirectorySummary {
  std::vector<TagSummary> tags;  // by the time they were saved, then by name
  std::string latest;            // what `latest` names; empty when there is no such file
  std::string latest_fault;      // why nothing loads without a tag; empty: something does
};

// Directories that hold nothing of a checkpoint are left out. Throws FileError when the directory
// cannot be listed.
DirectorySummary summarize(const std::filesystem::path& directory,
                           FileSystem& file_system = posix_file_system());

}  // namespace penstock::checkpoint
