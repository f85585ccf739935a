// The steps by which rank 0 alone makes written files a checkpoint.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"

namespace penstock::checkpoint {

// The paths of one tag.
struct Places {
  Places(const std::filesystem::path& parent, const std::string& tag_name);

  std::filesystem::path directory;
  std::string tag;
  std::filesystem::path complete;   // <directory>/<tag>
  std::filesystem::path temporary;  // <directory>/<tag>.tmp
  std::filesystem::path old;        // <directory>/<tag>.old
};

// Writes the manifest into the temporary directory and renames that to its final name, durably.
// What had this name becomes `old`. Throws when a listed file is not there with its size: then
// ranks do not write to one file system.
void publish(FileSystem& file_system, const Places& places, const Manifest& manifest);

// Lets `latest` name the tag, durably.
void point_latest(FileSystem& file_system, const Places& places);

// Removes what the new checkpoint replaces: `old`, and with keep_last > 0 the oldest complete tags
// beyond that many, but never the new one or what `latest` names. Returns what could not be done,
// and which tags are not complete: those are neither counted nor removed.
std::vector<std::string> remove_replaced(FileSystem& file_system, const Places& places,
                                         int keep_last);

// What `latest` says. Throws FileError when it is missing or empty.
std::string read_latest(FileSystem& file_system, const std::filesystem::path& directory);

// Why a directory is not a complete checkpoint: its manifest cannot be read, or a file of it is
// missing or of another size. Nothing when it is complete; then `manifest` is filled in.
std::optional<std::string> incomplete(FileSystem& file_system,
                                      const std::filesystem::path& directory, Manifest& manifest);

// The complete tags of a directory, sorted by name; empty when there is no such directory.
std::vector<std::string> complete_tags(FileSystem& file_system,
                                       const std::filesystem::path& directory);

}  // namespace penstock::checkpoint
