// Weights cut into several safetensors files, and the index that says which tensor lies where.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/safetensors.h"

namespace penstock::checkpoint {

// Opens the files that an index (model.safetensors.index.json) names; they lie beside it. Throws
// FileError, naming file and tensor, when the index is malformed, a file is missing, a file does
// not hold a tensor that the index promises, or holds one that the index does not name there.
std::vector<SafetensorsFile> open_indexed_files(const std::filesystem::path& index,
                                                FileSystem& file_system);

}  // namespace penstock::checkpoint
