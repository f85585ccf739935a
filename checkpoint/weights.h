// Model weights in plain safetensors files, such as Hugging Face's.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

namespace penstock::checkpoint {

// Gives the model's name for a file's name, or nothing for a tensor that is to be ignored.
using NameMap = std::function<std::optional<std::string>(std::string_view name_in_file)>;

// Stored weights seen as one map from the model's names to tensors; nothing but headers is read
// until a tensor is asked for.
class Weights {
 public:
  // A file, or a folder that holds model.safetensors or else model.safetensors.index.json with the
  // files that it names. Throws FileError when there is none or it is malformed, when the index and
  // the files' headers differ in what they hold, or when the map gives two tensors one name.
  static Weights open(const std::filesystem::path& path, const NameMap& map = {},
                      FileSystem& file_system = posix_file_system());

  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  // Of the first file.
  const Metadata& metadata() const { return files_.front().metadata(); }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // Throws FileError when there is no such tensor.
  const TensorInfo& info(std::string_view name) const;
  // Fills the destination (cpu); the shapes must be equal.
  void read(std::string_view name, const tensor::Tensor& destination, Cast cast = Cast::kNo) const;

 private:
  struct Place {
    std::size_t file;
    std::string name;  // in that file
  };

  explicit Weights(std::vector<SafetensorsFile> files) : files_(std::move(files)) {}

  std::vector<SafetensorsFile> files_;  // at least one
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, Place, std::less<>> places_;
};

// Writes one safetensors file: at `path` if that ends in ".safetensors", else model.safetensors in
// the folder `path`, which is made when missing. The file appears under its name only when it is
// complete and on the disk.
void save_weights(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                  Metadata metadata = {}, FileSystem& file_system = posix_file_system());

}  // namespace penstock::checkpoint
