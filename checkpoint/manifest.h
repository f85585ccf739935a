// The manifest: what belongs to a checkpoint (docs/checkpoint-format.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/region.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace penstock::checkpoint {

inline constexpr int kFormatVersion = 1;
inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kEngineFile = "engine.json";
inline constexpr std::string_view kLatestFile = "latest";
inline constexpr std::string_view kTemporarySuffix = ".tmp";
inline constexpr std::string_view kOldSuffix = ".old";

struct FileFacts {
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

struct ManifestPiece {
  std::string file;
  Region region;  // normalized
  std::uint64_t checksum = 0;
};

struct ManifestTensor {
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;
  std::vector<ManifestPiece> pieces;
};

struct Manifest {
  std::int64_t saved_at = 0;  // nanoseconds since 1970
  std::map<std::string, FileFacts, std::less<>> files;
  std::map<std::string, ManifestTensor, std::less<>> tensors;
};

// The name of a piece inside its file: "w", "w#1[8:16]", "w[100:200]".
std::string stored_name(std::string_view name, const tensor::Shape& shape, const Region& region);

// Adds the files and pieces of another rank. Throws FileError for a file that both have, and for a
// tensor whose dtype or shape differ.
void merge(Manifest& manifest, const Manifest& other);

// Throws FileError unless the pieces of every tensor hold each of its elements once.
void check_tiling(const Manifest& manifest);

std::string to_text(const Manifest& manifest);
// Throws FileError, with `where` as the file's name, unless checksum and grammar are right.
Manifest parse_manifest(std::string_view where, std::string_view text);

}  // namespace penstock::checkpoint
