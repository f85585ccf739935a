#include "checkpoint/weights.h"

#include "checkpoint/agreement.h"
#include "checkpoint/fill.h"
#include "checkpoint/manifest.h"
#include "checkpoint/overlap.h"
#include "checkpoint/run_reader.h"
#include "checkpoint/shard_index.h"
#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

// The files of a folder, checked against its index.
std::vector<SafetensorsFile> open_shards(FileSystem& file_system, const fs::path& folder) {
  const fs::path index_path = folder / kShardIndexFile;
  const ShardIndex index =
      parse_shard_index(index_path.string(), read_text(file_system, index_path));
  const auto says = [&](const std::string& what) {
    return FileError("[" + index_path.string() + "] " + what);
  };
  std::map<std::string, SafetensorsFile> files;
  for (const auto& [name, file] : index) {
    auto found = files.find(file);
    if (found == files.end()) {
      if (file_system.kind(folder / file) != FileKind::kFile) {
        throw says("tensor \"" + name + "\" is in " + file + ", which is missing");
      }
      found = files.emplace(file, SafetensorsFile::open(folder / file, file_system)).first;
    }
    if (found->second.find(name) == nullptr) {
      throw says("tensor \"" + name + "\" is missing from " + file);
    }
  }
  std::vector<SafetensorsFile> shards;
  for (auto& [file, shard] : files) {
    for (const StoredTensor& stored : shard.tensors()) {
      const auto listed = index.find(stored.name);
      if (listed != index.end() && listed->second == file) continue;
      throw says(file + " holds the unexpected tensor \"" + stored.name + "\"" +
                 (listed == index.end() ? "" : ", which is in " + listed->second));
    }
    shards.push_back(std::move(shard));
  }
  if (shards.empty()) throw says("lists no tensors");
  return shards;
}

// What lies at a path. "<path>.old" is what was there before a save of the module was cut short
// between its last two renamings.
std::vector<SafetensorsFile> open_files(FileSystem& file_system, const fs::path& path) {
  const auto one = [&](const fs::path& file) {
    std::vector<SafetensorsFile> files;
    files.push_back(SafetensorsFile::open(file, file_system));
    return files;
  };
  switch (file_system.kind(path)) {
    case FileKind::kMissing: {
      const fs::path old = path.string() + std::string(kOldSuffix);
      if (file_system.kind(old) == FileKind::kDirectory) return open_files(file_system, old);
      throw FileError("[" + path.string() +
                      "] does not exist; expected a safetensors file or a folder with " +
                      std::string(kSingleWeightsFile));
    }
    case FileKind::kFile:
    case FileKind::kOther:  // is refused when it is opened
      return one(path);
    case FileKind::kDirectory:
      break;
  }
  if (file_system.kind(path / kShardIndexFile) == FileKind::kFile) {
    return open_shards(file_system, path);
  }
  if (file_system.kind(path / kSingleWeightsFile) == FileKind::kFile) {
    return one(path / kSingleWeightsFile);
  }
  throw FileError("[" + path.string() + "] holds neither " + std::string(kSingleWeightsFile) +
                  " nor " + std::string(kShardIndexFile));
}

}  // namespace

Weights Weights::open(const fs::path& path, const NameMap& map, FileSystem& file_system) {
  Weights weights(path);
  for (SafetensorsFile& file : open_files(file_system, path)) {
    weights.add_file(std::move(file), map);
  }
  return weights;
}

void Weights::add_file(SafetensorsFile file, const NameMap& map) {
  for (const StoredTensor& stored : file.tensors()) {
    const std::optional<std::string> name = map ? map(stored.name) : stored.name;
    if (!name) continue;
    const auto [known, added] = places_.emplace(*name, Place{files_.size(), stored.name});
    if (!added) {
      throw FileError("[" + file.path().string() + "] tensors \"" + known->second.name +
                      "\" and \"" + stored.name + "\" both stand for \"" + *name +
                      "\"; expected one");
    }
    tensors_.emplace(*name, TensorInfo{stored.dtype, stored.shape});
  }
  files_.push_back(std::move(file));
}

const TensorInfo& Weights::info(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  throw FileError("[" + path_.string() + "] holds no tensor for \"" + std::string(name) + "\"");
}

void Weights::read(std::string_view name, const tensor::Tensor& destination, Cast cast) const {
  const tensor::Shape& shape = info(name).shape;
  if (destination.shape() != shape) {
    const Place& place = places_.find(name)->second;
    throw FileError("[" + files_[place.file].path().string() + "] tensor \"" + place.name +
                    "\" is " + shape.to_string() + "; expected " + destination.shape().to_string());
  }
  read(name, Region::whole(shape), destination, cast);
}

void Weights::read(std::string_view name, const Region& region, const tensor::Tensor& destination,
                   Cast cast) const {
  const tensor::Shape& shape = info(name).shape;
  const Place& place = places_.find(name)->second;
  const SafetensorsFile& file = files_[place.file];
  const StoredTensor& stored = file.at(place.name);
  const std::string where = "[" + file.path().string() + "] tensor \"" + stored.name + "\"";
  region.validate(shape);
  if (destination.numel() != region.numel()) {
    throw tensor::InvalidArgument(where + ": " + region.to_string(shape) + " has " +
                                  std::to_string(region.numel()) + " elements; got a destination " +
                                  destination.to_string());
  }
  const std::size_t element = size_of(stored.dtype);
  fill(destination, stored.dtype, cast, where, [&](std::int64_t first, std::span<std::byte> out) {
    const auto count = static_cast<std::int64_t>(out.size() / element);
    RunReader reader(file, stored);
    RunCursor run(region.elements(first, first + count), shape);
    for (; !run.done(); run.advance(run.length())) {
      reader.read(run.logical(), out.subspan(static_cast<std::size_t>(run.local()) * element,
                                             static_cast<std::size_t>(run.length()) * element));
    }
  });
}

void save_weights(const fs::path& path, std::span<const NamedTensor> tensors, Metadata metadata,
                  FileSystem& file_system) {
  const bool is_file = path.extension() == ".safetensors";
  const fs::path target = is_file ? path : path / kSingleWeightsFile;
  const fs::path parent = target.parent_path().empty() ? fs::path(".") : target.parent_path();
  make_directories(file_system, parent);
  const fs::path temporary = target.string() + ".tmp";
  try {
    write_safetensors(temporary, tensors, std::move(metadata), file_system);
    file_system.rename(temporary, target);
  } catch (const tensor::Error&) {
    (void)failure_of([&] { file_system.remove_all(temporary); });  // the first error tells more
    throw;
  }
  file_system.sync_directory(parent);
}

}  // namespace penstock::checkpoint
