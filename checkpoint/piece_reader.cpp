#include "checkpoint/piece_reader.h"

#include <optional>

#include "checkpoint/overlap.h"
#include "checkpoint/run_reader.h"

namespace penstock::checkpoint {
namespace {

constexpr std::size_t kMostOpenFiles = 64;

}  // namespace

const SafetensorsFile& PieceReader::file(const std::filesystem::path& path) {
  const auto known = open_.find(path);
  if (known != open_.end()) return known->second;
  if (open_.size() == kMostOpenFiles) open_.clear();
  return open_.emplace(path, SafetensorsFile::open(path, file_system_)).first->second;
}

void PieceReader::read(const std::filesystem::path& directory, const std::string& name,
                       const ManifestTensor& tensor, const Region& region,
                       std::span<std::byte> out) {
  const std::size_t element = tensor::size_of(tensor.dtype);
  for (const ManifestPiece& piece : tensor.pieces) {
    // A piece that shares nothing with the region need not be opened.
    std::optional<RunReader> runs;
    const auto copy = [&](std::int64_t wanted, std::int64_t stored, std::int64_t count) {
      if (!runs) {
        const SafetensorsFile& source = file(directory / piece.file);
        runs.emplace(source, source.at(stored_name(name, tensor.shape, piece.region)));
      }
      runs->read(stored, out.subspan(static_cast<std::size_t>(wanted) * element,
                                     static_cast<std::size_t>(count) * element));
    };
    for_each_overlap(region, piece.region, tensor.shape, copy);
  }
}

}  // namespace penstock::checkpoint
