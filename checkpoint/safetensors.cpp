#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "checkpoint/hash.h"

namespace penstock::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little endian, and tensors are written as they lie in memory");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kLengthBytes = 8;
// Written and hashed at a time: small enough to be in the cache for the second of the two.
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

void require_cpu(const std::string& where, const tensor::Tensor& tensor) {
  if (!tensor.defined()) {
    throw tensor::InvalidArgument("[safetensors] " + where + " is an undefined tensor");
  }
  if (tensor.device().type != tensor::DeviceType::kCpu) {
    throw tensor::InvalidArgument("[safetensors] " + where + " is " + tensor.to_string() +
                                  "; expected a tensor on cpu; copy it there first");
  }
}

void require_bools(const std::filesystem::path& path, const StoredTensor& stored,
                   std::span<const std::byte> bytes) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                [](std::byte value) { return value > std::byte{1}; });
  if (bad != bytes.end()) {
    throw FileError("[" + path.string() + "] tensor \"" + stored.name + "\": a BOOL is " +
                    std::to_string(std::to_integer<int>(*bad)) + "; expected 0 or 1");
  }
}

// The order in which tensors are written: this keeps each one aligned to its elements.
std::vector<std::size_t> data_order(std::span<const NamedTensor> tensors) {
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const std::size_t size_a = tensor::size_of(tensors[a].data.dtype());
    const std::size_t size_b = tensor::size_of(tensors[b].data.dtype());
    return size_a != size_b ? size_a > size_b : tensors[a].name < tensors[b].name;
  });
  return order;
}

void validate(std::span<const NamedTensor> tensors) {
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    const std::string where = "tensor \"" + tensor.name + "\"";
    require_cpu(where, tensor.data);
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      throw tensor::InvalidArgument(
          "[safetensors] " + where +
          (tensor.name == "__metadata__" ? ": the name is reserved" : " is given twice"));
    }
    if (tensor.shape.numel() != tensor.data.numel()) {
      throw tensor::InvalidArgument("[safetensors] " + where + " is to be stored as " +
                                    tensor.shape.to_string() + " but is " +
                                    tensor.data.to_string());
    }
  }
}

// The header with its length in front and its padding behind.
std::string make_header(std::span<const NamedTensor> tensors, const std::vector<std::size_t>& order,
                        const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const NamedTensor& tensor = tensors[i];
    const std::uint64_t end = offset + tensor.data.nbytes();
    header[tensor.name] = {{"dtype", safetensors_name(tensor.data.dtype())},
                           {"shape", std::vector<std::int64_t>(tensor.shape.dims().begin(),
                                                               tensor.shape.dims().end())},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw tensor::InvalidArgument("[safetensors] a name or metadata text is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw tensor::InvalidArgument("[safetensors] the header would have " +
                                  std::to_string(text.size()) + " bytes; the format allows " +
                                  std::to_string(kMaxHeaderBytes) + "; use more files");
  }
  const auto length = std::bit_cast<std::array<char, kLengthBytes>>(std::uint64_t{text.size()});
  return std::string(length.begin(), length.end()) + text;
}

// What is decided before a file is made.
struct Layout {
  std::vector<std::size_t> order;  // of the tensors' data
  std::string header;              // with its length
};

Layout lay_out(std::span<const NamedTensor> tensors, Metadata metadata) {
  validate(tensors);
  metadata.emplace("format", "pt");  // transformers refuses files without it
  std::vector<std::size_t> order = data_order(tensors);
  std::string header = make_header(tensors, order, metadata);
  return {std::move(order), std::move(header)};
}

FileDigest write(FileWriter& file, std::span<const NamedTensor> tensors, const Layout& layout) {
  FileDigest digest;
  digest.tensor_checksums.resize(tensors.size());
  Checksum whole;
  const auto append = [&](std::span<const std::byte> bytes) {
    whole.update(bytes);
    file.write(bytes);
    digest.bytes += bytes.size();
  };
  append(std::as_bytes(std::span(layout.header)));
  for (const std::size_t i : layout.order) {
    const tensor::Tensor& data = tensors[i].data;
    Checksum own;
    for (std::size_t done = 0; done < data.nbytes(); done += kBlockBytes) {
      const std::span block(data.raw() + done, std::min(kBlockBytes, data.nbytes() - done));
      own.update(block);
      append(block);
    }
    digest.tensor_checksums[i] = own.value();
  }
  digest.checksum = whole.value();
  return digest;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path, FileSystem& file_system) {
  SafetensorsFile result;
  result.path_ = path;
  result.file_ = file_system.open(path);
  const std::string where = path.string();
  const std::uint64_t size = result.file_->size();
  if (size < kLengthBytes) {
    throw FileError("[" + where + "] has " + std::to_string(size) +
                    " bytes; expected at least 8, the length of a header");
  }
  std::uint64_t length = 0;
  result.file_->read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeaderBytes) {
    throw FileError("[" + where + "] the header's length is " + std::to_string(length) +
                    "; expected at most " + std::to_string(kMaxHeaderBytes));
  }
  if (length > size - kLengthBytes) {
    throw FileError("[" + where + "] the header's length is " + std::to_string(length) +
                    " but only " + std::to_string(size - kLengthBytes) +
                    " bytes follow; the file is cut off, or not safetensors");
  }
  std::string text(length, '\0');
  result.file_->read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  result.data_begin_ = kLengthBytes + length;
  result.header_ = parse_safetensors_header(where, text, size - result.data_begin_);
  for (std::size_t i = 0; i < result.header_.tensors.size(); ++i) {
    result.index_.emplace(result.header_.tensors[i].name, i);
  }
  return result;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* stored = find(name)) return *stored;
  throw FileError("[" + path_.string() + "] has no tensor \"" + std::string(name) + "\"");
}

void SafetensorsFile::read_elements(const StoredTensor& stored, std::int64_t first,
                                    std::span<std::byte> out) const {
  const std::size_t element = tensor::size_of(stored.dtype);
  const std::int64_t count = static_cast<std::int64_t>(out.size() / element);
  if (out.size() % element != 0 || first < 0 || first > stored.shape.numel() - count) {
    throw tensor::InvalidArgument("[safetensors] " + std::to_string(out.size()) +
                                  " bytes from element " + std::to_string(first) + " of tensor \"" +
                                  stored.name + "\", " + stored.shape.to_string());
  }
  file_->read(data_begin_ + stored.begin + static_cast<std::uint64_t>(first) * element, out);
  if (stored.dtype == tensor::DType::kBool) require_bools(path_, stored, out);
}

void SafetensorsFile::read(std::string_view name, std::int64_t first,
                           const tensor::Tensor& out) const {
  const StoredTensor& stored = at(name);
  require_cpu("the destination of tensor \"" + stored.name + "\"", out);
  if (out.dtype() != stored.dtype) {
    throw FileError("[" + path_.string() + "] tensor \"" + stored.name + "\" is " +
                    std::string(name_of(stored.dtype)) + "; expected " +
                    std::string(name_of(out.dtype())));
  }
  read_elements(stored, first, {out.raw(), out.nbytes()});
}

void SafetensorsFile::read(std::string_view name, const tensor::Tensor& out) const {
  const StoredTensor& stored = at(name);
  require_cpu("the destination of tensor \"" + stored.name + "\"", out);
  if (out.shape() != stored.shape) {
    throw FileError("[" + path_.string() + "] tensor \"" + stored.name + "\" is " +
                    stored.shape.to_string() + "; expected " + out.shape().to_string());
  }
  read(name, 0, out);
}

FileDigest write_safetensors(FileWriter& file, std::span<const NamedTensor> tensors,
                             Metadata metadata) {
  return write(file, tensors, lay_out(tensors, std::move(metadata)));
}

FileDigest write_safetensors(const std::filesystem::path& path,
                             std::span<const NamedTensor> tensors, Metadata metadata,
                             FileSystem& file_system) {
  const Layout layout = lay_out(tensors, std::move(metadata));
  const std::unique_ptr<FileWriter> file = file_system.create(path);
  FileDigest digest = write(*file, tensors, layout);
  file->sync();
  file->close();
  return digest;
}

}  // namespace penstock::checkpoint
