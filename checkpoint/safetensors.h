// safetensors files: named tensors behind a JSON header; written, and read with every check that
// the format allows (docs/checkpoint-format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_system.h"
#include "tensor/tensor.h"

namespace penstock::checkpoint {

// The format's names: "F32", "BOOL", …
std::string_view safetensors_name(tensor::DType dtype);
std::optional<tensor::DType> dtype_from_safetensors(std::string_view name);

// One tensor of a file; its elements are bytes [begin, end) of the file's data.
struct StoredTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data
  Metadata metadata;
};

// Parses the JSON text of a header whose data has data_bytes bytes. Throws FileError, with `where`
// as the file's name, unless the header and the size are exactly right.
SafetensorsHeader parse_safetensors_header(std::string_view where, std::string_view json,
                                           std::uint64_t data_bytes);

// An open file. Tensors are read on demand; the rest of the file is not touched.
class SafetensorsFile {
 public:
  // Reads and checks the header. Throws FileError.
  static SafetensorsFile open(const std::filesystem::path& path,
                              FileSystem& file_system = posix_file_system());

  const std::filesystem::path& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  // Null when there is no such tensor.
  const StoredTensor* find(std::string_view name) const;
  // Throws FileError when there is no such tensor.
  const StoredTensor& at(std::string_view name) const;

  // Fills out with the stored elements from `first` on; out.size() must be whole elements. Throws
  // FileError when the file has been cut since it was opened, or a BOOL is neither 0 nor 1.
  void read_elements(const StoredTensor& stored, std::int64_t first,
                     std::span<std::byte> out) const;
  // The same for a tensor on cpu of the stored dtype; elements [first, first + out.numel()).
  void read(std::string_view name, std::int64_t first, const tensor::Tensor& out) const;
  // All of it; the shapes must be equal.
  void read(std::string_view name, const tensor::Tensor& out) const;

 private:
  SafetensorsFile() = default;

  std::filesystem::path path_;
  std::unique_ptr<FileReader> file_;
  SafetensorsHeader header_;
  std::map<std::string_view, std::size_t> index_;  // names live in header_
  std::uint64_t data_begin_ = 0;                   // where the data begin in the file
};

// What to write: data's elements under a name and a shape of the same number of elements.
struct NamedTensor {
  std::string name;
  tensor::Shape shape;
  tensor::Tensor data;  // cpu

  NamedTensor(std::string tensor_name, const tensor::Tensor& tensor)
      : name(std::move(tensor_name)), shape(tensor.shape()), data(tensor) {}
  NamedTensor(std::string tensor_name, const tensor::Shape& stored, const tensor::Tensor& tensor)
      : name(std::move(tensor_name)), shape(stored), data(tensor) {}
};

// What was written.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;                   // of the whole file
  std::vector<std::uint64_t> tensor_checksums;  // of each tensor's data, in the order given
};

// Writes a new file straight from the tensors' storages and syncs it; the directory is not synced.
// "format": "pt" is added to the metadata when it has no format. Throws InvalidArgument for tensors
// that cannot be stored: one name twice, the name "__metadata__", a name that is not UTF-8, a
// device other than cpu.
FileDigest write_safetensors(const std::filesystem::path& path,
                             std::span<const NamedTensor> tensors, Metadata metadata = {},
                             FileSystem& file_system = posix_file_system());
// The same into an open file, which is neither synced nor closed.
FileDigest write_safetensors(FileWriter& file, std::span<const NamedTensor> tensors,
                             Metadata metadata = {});

}  // namespace penstock::checkpoint
