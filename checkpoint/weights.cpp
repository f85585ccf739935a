#include "checkpoint/weights.h"

#include "checkpoint/agreement.h"
#include "checkpoint/fill.h"
#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

fs::path single_file(FileSystem& file_system, const fs::path& path) {
  switch (file_system.kind(path)) {
    case FileKind::kMissing:
      throw FileError("[" + path.string() +
                      "] does not exist; expected a safetensors file or a folder with " +
                      std::string(kSingleFile));
    case FileKind::kFile:
      return path;
    case FileKind::kDirectory:
      break;
  }
  if (file_system.kind(path / kSingleFile) == FileKind::kFile) return path / kSingleFile;
  if (file_system.kind(path / kIndexFile) == FileKind::kFile) {
    throw tensor::Unsupported("[" + (path / kIndexFile).string() +
                              "] weights in several files cannot be read; expected " +
                              std::string(kSingleFile) + "; save the model again in one file");
  }
  throw FileError("[" + path.string() + "] holds no " + std::string(kSingleFile));
}

}  // namespace

Weights Weights::open(const fs::path& path, const NameMap& map, FileSystem& file_system) {
  Weights weights(SafetensorsFile::open(single_file(file_system, path), file_system));
  for (const StoredTensor& stored : weights.file_.tensors()) {
    const std::optional<std::string> name = map ? map(stored.name) : stored.name;
    if (!name) continue;
    const auto [known, added] = weights.name_in_file_.emplace(*name, stored.name);
    if (!added) {
      throw FileError("[" + weights.file_.path().string() + "] tensors \"" + known->second +
                      "\" and \"" + stored.name + "\" both stand for \"" + *name +
                      "\"; expected one");
    }
    weights.tensors_.emplace(*name, TensorInfo{stored.dtype, stored.shape});
  }
  return weights;
}

const TensorInfo& Weights::info(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  throw FileError("[" + file_.path().string() + "] holds no tensor for \"" + std::string(name) +
                  "\"");
}

void Weights::read(std::string_view name, const tensor::Tensor& destination, Cast cast) const {
  const TensorInfo& wanted = info(name);
  const StoredTensor& stored = file_.at(name_in_file_.find(name)->second);
  const std::string where = "[" + file_.path().string() + "] tensor \"" + stored.name + "\"";
  if (destination.shape() != wanted.shape) {
    throw FileError(where + " is " + wanted.shape.to_string() + "; expected " +
                    destination.shape().to_string());
  }
  fill(destination, stored.dtype, cast, where, [&](std::int64_t first, std::span<std::byte> out) {
    file_.read_elements(stored, first, out);
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
