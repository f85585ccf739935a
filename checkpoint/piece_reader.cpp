#include "checkpoint/piece_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "checkpoint/overlap.h"

namespace penstock::checkpoint {
namespace {

constexpr std::size_t kMostOpenFiles = 64;
// Runs shorter than this are copied out of a window of the file that is read at once.
constexpr std::size_t kWindowBytes = std::size_t{1} << 20;

// Reads runs of one stored piece, which come in ascending order.
class RunReader {
 public:
  RunReader(const SafetensorsFile& file, const StoredTensor& stored)
      : file_(file), stored_(stored), element_(tensor::size_of(stored.dtype)) {}

  void read(std::int64_t first, std::span<std::byte> out) {
    if (out.size() >= kWindowBytes) {
      file_.read_elements(stored_, first, out);
      return;
    }
    const std::size_t begin = static_cast<std::size_t>(first) * element_;
    if (begin < window_begin_ || begin + out.size() > window_begin_ + window_.size()) {
      const std::size_t total = static_cast<std::size_t>(stored_.end - stored_.begin);
      window_.resize(std::min(kWindowBytes, total - begin));
      window_begin_ = begin;
      file_.read_elements(stored_, first, window_);
    }
    std::memcpy(out.data(), window_.data() + (begin - window_begin_), out.size());
  }

 private:
  const SafetensorsFile& file_;
  const StoredTensor& stored_;
  std::size_t element_;
  std::vector<std::byte> window_;
  std::size_t window_begin_ = 0;
};

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
