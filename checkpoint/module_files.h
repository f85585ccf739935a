// Saving the weights of a model whose ranks hold a part each. checkpoint/weights.h reads them.
#pragma once

#include <filesystem>
#include <span>

#include "checkpoint/file_system.h"
#include "checkpoint/safetensors.h"

namespace penstock::comm {
class World;
}

namespace penstock::checkpoint {

// Collective. Makes `folder` hold the tensors of all ranks, each under its name: model.safetensors
// if one rank holds all; otherwise one file for each rank that holds some, and
// model.safetensors.index.json. Written beside it first, so that the folder is there whole or as it
// was; "<folder>.tmp" and "<folder>.old" are used for that. Throws FileError, the same on every
// rank: for a name that two ranks give, and for a folder that holds anything but such files.
void save_module_files(comm::World& world, const std::filesystem::path& folder,
                       std::span<const NamedTensor> tensors,
                       FileSystem& file_system = posix_file_system());

}  // namespace penstock::checkpoint
