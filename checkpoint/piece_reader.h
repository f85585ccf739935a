// Puts logical tensors together from the pieces in which they are stored.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace penstock::checkpoint {

class PieceReader {
 public:
  explicit PieceReader(FileSystem& file_system) : file_system_(file_system) {}

  // Fills out with a region of a tensor in its stored dtype, in the region's own order.
  void read(const std::filesystem::path& directory, const std::string& name,
            const ManifestTensor& tensor, const Region& region, std::span<std::byte> out);

 private:
  const SafetensorsFile& file(const std::filesystem::path& path);

  FileSystem& file_system_;
  std::map<std::filesystem::path, SafetensorsFile> open_;  // a bounded number of them
};

}  // namespace penstock::checkpoint
