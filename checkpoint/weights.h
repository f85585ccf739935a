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
  // A file, or a folder that holds model.safetensors or several files with
  // model.safetensors.index.json. Throws FileError when there is none or it is malformed, when
  // index and files do not hold exactly the same tensors, or the map gives two tensors one name.
  static Weights open(const std::filesystem::path& path, const NameMap& map = {},
                      FileSystem& file_system = posix_file_system());

  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return files_.front().metadata(); }  // of the first file
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // Throws FileError when there is no such tensor.
  const TensorInfo& info(std::string_view name) const;
  // Fills the destination (cpu). Whole: the shapes must be equal. Region: destination.numel() must
  // be region.numel(); its shape is free.
  void read(std::string_view name, const tensor::Tensor& destination, Cast cast = Cast::kNo) const;
  void read(std::string_view name, const Region& region, const tensor::Tensor& destination,
            Cast cast = Cast::kNo) const;

 private:
  // Where a tensor lies.
  struct Place {
    std::size_t file;  // into files_
    std::string name;  // in the file
  };

  explicit Weights(std::filesystem::path path) : path_(std::move(path)) {}
  void add_file(SafetensorsFile file, const NameMap& map);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, Place, std::less<>> places_;
};

// Writes one safetensors file: at `path` if that ends in ".safetensors", else model.safetensors in
// the folder `path`, which is made when missing. The file appears under its name only when it is
// complete and on the disk.
void save_weights(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                  Metadata metadata = {}, FileSystem& file_system = posix_file_system());

}  // namespace penstock::checkpoint
