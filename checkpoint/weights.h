// Model weights in plain safetensors files, such as Hugging Face's.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

namespace penstock::checkpoint {

// Gives the model's name for a file's name, or nothing for a tensor that is to be ignored.
using NameMap = std::function<std::optional<std::string>(std::string_view name_in_file)>;

// Stored weights seen as one map from the model's names to tensors; nothing but the header is read
// until a tensor is asked for.
class Weights {
 public:
  // A file, or a folder that holds model.safetensors. Throws FileError when there is none or it is
  // malformed, or the map gives two tensors one name; Unsupported for weights cut into several
  // files (model.safetensors.index.json).
  static Weights open(const std::filesystem::path& path, const NameMap& map = {},
                      FileSystem& file_system = posix_file_system());

  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return file_.metadata(); }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // Throws FileError when there is no such tensor.
  const TensorInfo& info(std::string_view name) const;
  // Fills the destination (cpu); the shapes must be equal.
  void read(std::string_view name, const tensor::Tensor& destination, Cast cast = Cast::kNo) const;

 private:
  explicit Weights(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> name_in_file_;
};

// Writes one safetensors file: at `path` if that ends in ".safetensors", else model.safetensors in
// the folder `path`, which is made when missing. The file appears under its name only when it is
// complete and on the disk.
void save_weights(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                  Metadata metadata = {}, FileSystem& file_system = posix_file_system());

}  // namespace penstock::checkpoint
