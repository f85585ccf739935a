#include "checkpoint/manifest.h"

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

#include "checkpoint/error.h"

namespace penstock::checkpoint {
namespace {

// Where the pieces of one slice do not fill it, or nothing. pieces: of equal slices, sorted.
std::optional<std::string> range_fault(std::span<const Region> pieces, std::int64_t available) {
  std::int64_t filled = 0;
  for (const Region& piece : pieces) {
    if (piece.begin < filled) {
      return "elements from " + std::to_string(piece.begin) + " on are stored twice";
    }
    if (piece.begin > filled) break;
    filled = piece.end;
  }
  if (filled == available) return std::nullopt;
  return "elements from " + std::to_string(filled) + " on are not stored";
}

// Unsliced pieces count as slices of the whole axis.
std::vector<Region> on_common_axis(const ManifestTensor& tensor) {
  int axis = -1;
  for (const ManifestPiece& piece : tensor.pieces) axis = std::max(axis, piece.region.axis);
  std::vector<Region> regions;
  for (const ManifestPiece& piece : tensor.pieces) {
    Region region = piece.region;
    if (region.axis < 0 && axis >= 0) {
      region.axis = axis;
      region.axis_end = tensor.shape[axis];
    }
    regions.push_back(region);
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) {
    return std::tie(a.axis_begin, a.axis_end, a.begin, a.end) <
           std::tie(b.axis_begin, b.axis_end, b.begin, b.end);
  });
  return regions;
}

std::optional<std::string> tiling_fault(const ManifestTensor& tensor) {
  if (tensor.shape.numel() == 0) {
    if (tensor.pieces.size() == 1) return std::nullopt;
    return "it has no elements but is given " + std::to_string(tensor.pieces.size()) + " times";
  }
  if (tensor.pieces.empty()) return "it has no pieces";
  const std::vector<Region> regions = on_common_axis(tensor);
  const int axis = regions.front().axis;
  std::int64_t filled = 0;  // along the axis
  for (std::size_t i = 0; i < regions.size();) {
    const Region& first = regions[i];
    if (first.axis != axis) return "it is sliced along two axes";
    std::size_t next = i;
    while (next < regions.size() && regions[next].axis == axis &&
           regions[next].axis_begin == first.axis_begin &&
           regions[next].axis_end == first.axis_end) {
      ++next;
    }
    if (axis >= 0 && first.axis_begin < filled) {
      return "index " + std::to_string(first.axis_begin) + " of axis " + std::to_string(axis) +
             " is stored twice";
    }
    if (axis >= 0 && first.axis_begin > filled) break;
    const auto fault = range_fault(std::span(regions).subspan(i, next - i),
                                   first.slice_shape(tensor.shape).numel());
    if (fault && axis < 0) return fault;
    if (fault) {
      return *fault + " (axis " + std::to_string(axis) + " [" + std::to_string(first.axis_begin) +
             ", " + std::to_string(first.axis_end) + "))";
    }
    filled = first.axis_end;
    i = next;
  }
  if (axis >= 0 && filled != tensor.shape[axis]) {
    return "index " + std::to_string(filled) + " of axis " + std::to_string(axis) +
           " is not stored";
  }
  return std::nullopt;
}

}  // namespace

std::string stored_name(std::string_view name, const tensor::Shape& shape, const Region& region) {
  const auto interval = [](std::int64_t begin, std::int64_t end) {
    return std::string("[") + std::to_string(begin) + ":" + std::to_string(end) + "]";
  };
  std::string text(name);
  const Region normal = region.normalized(shape);
  if (normal.axis >= 0) {
    text += "#" + std::to_string(normal.axis) + interval(normal.axis_begin, normal.axis_end);
  }
  if (normal.numel() != normal.slice_shape(shape).numel()) {
    text += interval(normal.begin, normal.end);
  }
  return text;
}

void merge(Manifest& manifest, const Manifest& other) {
  for (const auto& [file, facts] : other.files) {
    if (!manifest.files.emplace(file, facts).second) {
      throw FileError("[save] the file " + file + " is given twice; expected one rank to write it");
    }
  }
  for (const auto& [name, tensor] : other.tensors) {
    const auto [found, added] = manifest.tensors.try_emplace(name, tensor);
    if (added) continue;
    ManifestTensor& known = found->second;
    if (known.dtype != tensor.dtype || known.shape != tensor.shape) {
      throw FileError("[save] tensor \"" + name + "\" is " + std::string(name_of(known.dtype)) +
                      " " + known.shape.to_string() + " in " + known.pieces.front().file + " but " +
                      std::string(name_of(tensor.dtype)) + " " + tensor.shape.to_string() + " in " +
                      tensor.pieces.front().file);
    }
    known.pieces.insert(known.pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
  }
}

void check_tiling(const Manifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors) {
    if (const auto fault = tiling_fault(tensor)) {
      std::string files;
      for (const ManifestPiece& piece : tensor.pieces) {
        files += (files.empty() ? "" : ", ") + piece.file;
      }
      throw FileError("[checkpoint] tensor \"" + name + "\" " + tensor.shape.to_string() + ": " +
                      *fault + "; its pieces are in " + files +
                      "; expected every element exactly once");
    }
  }
}

}  // namespace penstock::checkpoint
