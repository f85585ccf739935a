// What saves that were cut short leave behind.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace penstock::checkpoint {

// Removes it from a directory of checkpoints: every "<tag>.tmp", `latest.tmp`, and "<tag>.old"
// where <tag> is complete. Nothing in a directory tells debris from a save that is under way, so
// this is for who knows that there is none, such as the only run that may save there, before it
// begins. What holds anything but files of a checkpoint is left alone, as is what cannot be
// removed. Returns the names of what was removed; none when the directory is missing. Not
// collective.
std::vector<std::string> remove_debris(const std::filesystem::path& directory,
                                       FileSystem& file_system = posix_file_system());

}  // namespace penstock::checkpoint
