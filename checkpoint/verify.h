// Checking the files of a checkpoint against its manifest.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"

namespace penstock::checkpoint {

// The data files that one of `ranks` ranks checks: about the same number of bytes for each.
std::vector<std::string> share_of_files(const Manifest& manifest, int rank, int ranks);

// Which files of the manifest are missing or of another size, one text for each; also when
// engine.json is none of them. Their contents are not read.
std::vector<std::string> faults_of_sizes(FileSystem& file_system,
                                         const std::filesystem::path& directory,
                                         const Manifest& manifest);

// Checks the files: presence, size, checksum, and that each holds exactly the pieces that the
// manifest lists. One text for each file with a fault, naming files and tensors.
std::vector<std::string> faults_of_files(FileSystem& file_system,
                                         const std::filesystem::path& directory,
                                         const Manifest& manifest,
                                         const std::vector<std::string>& files);
// Throws one FileError that tells the first few, unless there are none.
void require_none(const std::vector<std::string>& faults);
// Throws what faults_of_files finds.
void verify_files(FileSystem& file_system, const std::filesystem::path& directory,
                  const Manifest& manifest, const std::vector<std::string>& files);

}  // namespace penstock::checkpoint
