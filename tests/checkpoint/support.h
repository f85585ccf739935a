// What the checkpoint tests share: temporary folders, files by bytes, ranks, and a small state that
// is saved and compared.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace penstock::checkpoint::testing {

using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::message;
using penstock::testing::TemporaryFolder;
using penstock::testing::values;

// A file's bytes, on any file system.
void put_bytes(FileSystem& file_system, const std::filesystem::path& path,
               const std::string& bytes);
std::string get_bytes(FileSystem& file_system, const std::filesystem::path& path);

// Runs fn on ranks that are threads.
void run_ranks(int ranks, const std::function<void(comm::World&)>& fn);

// The state of a run with kLayers layers, each with a weight [4, 6] in f32, a bias [6] in bf16 and
// the weight's moment in f32. Every element is decided by (version, layer, position).
inline constexpr int kLayers = 4;

// Saves one version; layer l and its moment are given by rank l mod ranks.
SaveRequest request_of(comm::World& world, const std::filesystem::path& directory,
                       const std::string& tag, int version);
// The version that a directory holds, after comparing every element; -1 with a test failure when it
// is none or mixed.
int version_of(const Reader& reader);

// Saves from `ranks` ranks.
void save_version(FileSystem& file_system, int ranks, const std::filesystem::path& directory,
                  const std::string& tag, int version);
// Loads on `ranks` ranks; the same version on all of them. Throws what open() throws.
int load_version(FileSystem& file_system, int ranks, const std::filesystem::path& directory,
                 const std::optional<std::string>& tag = std::nullopt);
// What load_version says when it fails, which must be the same on all ranks.
std::string load_error(FileSystem& file_system, int ranks, const std::filesystem::path& directory,
                       const std::optional<std::string>& tag = std::nullopt);

}  // namespace penstock::checkpoint::testing
