#include "checkpoint/weights.h"

#include "checkpoint/agreement.h"
#include "checkpoint/fill.h"
#include "checkpoint/weight_index.h"
#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

using Files = std::vector<SafetensorsFile>;

Files one_file(const fs::path& path, FileSystem& file_system) {
  Files files;
  files.push_back(SafetensorsFile::open(path, file_system));
  return files;
}

// The file or the files of an index.
Files open_files(const fs::path& path, FileSystem& file_system) {
  switch (file_system.kind(path)) {
    case FileKind::kMissing:
      throw FileError("[" + path.string() +
                      "] does not exist; expected a safetensors file or a folder with " +
                      std::string(kSingleFile));
    case FileKind::kFile:
      return one_file(path, file_system);
    case FileKind::kDirectory:
      break;
  }
  if (file_system.kind(path / kSingleFile) == FileKind::kFile) {
    return one_file(path / kSingleFile, file_system);
  }
  if (file_system.kind(path / kIndexFile) == FileKind::kFile) {
    return open_indexed_files(path / kIndexFile, file_system);
  }
  throw FileError("[" + path.string() + "] holds neither " + std::string(kSingleFile) + " nor " +
                  std::string(kIndexFile));
}

}  // namespace

Weights Weights::open(const fs::path& path, const NameMap& map, FileSystem& file_system) {
  Weights weights(open_files(path, file_system));
  for (std::size_t file = 0; file < weights.files_.size(); ++file) {
    const SafetensorsFile& stored_in = weights.files_[file];
    for (const StoredTensor& stored : stored_in.tensors()) {
      const std::optional<std::string> name = map ? map(stored.name) : stored.name;
      if (!name) continue;
      const auto [known, added] = weights.places_.emplace(*name, Place{file, stored.name});
      if (!added) {
        throw FileError("[" + stored_in.path().string() + "] tensors \"" + known->second.name +
                        "\" and \"" + stored.name + "\" both stand for \"" + *name +
                        "\"; expected one");
      }
      weights.tensors_.emplace(*name, TensorInfo{stored.dtype, stored.shape});
    }
  }
  return weights;
}

const TensorInfo& Weights::info(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  throw FileError("[" + files_.front().path().string() + "] " +
                  (files_.size() > 1 ? "and the files beside it hold" : "holds") +
                  " no tensor for \"" + std::string(name) + "\"");
}

void Weights::read(std::string_view name, const tensor::Tensor& destination, Cast cast) const {
  const TensorInfo& wanted = info(name);
  const Place& place = places_.find(name)->second;
  const SafetensorsFile& file = files_[place.file];
  const StoredTensor& stored = file.at(place.name);
  const std::string where = "[" + file.path().string() + "] tensor \"" + stored.name + "\"";
  if (destination.shape() != wanted.shape) {
    throw FileError(where + " is " + wanted.shape.to_string() + "; expected " +
                    destination.shape().to_string());
  }
  fill(destination, stored.dtype, cast, where, [&](std::int64_t first, std::span<std::byte> out) {
    file.read_elements(stored, first, out);
  });
}

void save_weights(const fs::path& path, std::span<const NamedTensor> tensors, Metadata metadata,
                  FileSystem& file_system) {
  const bool is_file = path.extension() == ".safetensors";
  const fs::path target = is_file ? path : path / kSingleFile;
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
