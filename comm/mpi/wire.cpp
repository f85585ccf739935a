#include "comm/mpi/wire.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>

namespace penstock::comm::mpi {

namespace {

constexpr std::uint32_t kMagic = 0x504b5453;

class Writer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void put_text(std::string_view text, std::size_t room) {
    const auto length = static_cast<std::uint32_t>(std::min(text.size(), room));
    put(length);
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + length);
  }
  void put_shape(const tensor::Shape& shape) {
    put(static_cast<std::uint8_t>(shape.rank()));
    for (const std::int64_t dim : shape.dims()) put(dim);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string get_text() {
    const auto bytes = take(get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  tensor::Shape get_shape() {
    std::array<std::int64_t, tensor::Shape::kMaxRank> dims{};
    const auto rank = get<std::uint8_t>();
    if (rank > dims.size()) throw CommError("[mpi] a message's header has an impossible shape");
    for (std::size_t axis = 0; axis < rank; ++axis) dims[axis] = get<std::int64_t>();
    return tensor::Shape(std::span(dims.data(), rank));
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) throw CommError("[mpi] a message's header ends too early");
    const auto front = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return front;
  }

  std::span<const std::byte> bytes_;
};

struct Prefix {
  std::uint32_t magic = kMagic;
  std::uint32_t bytes = 0;  // of the whole header
};

}  // namespace

std::vector<std::byte> encode_header(const Message& message) {
  Writer writer;
  writer.bytes().reserve(kHeaderBytes);
  writer.put(Prefix{});
  writer.put(message.header.batch);
  writer.put(message.header.micro_batch);
  writer.put(message.header.edge);
  writer.put(message.header.kind);
  writer.put(message.header.sample_hash);
  writer.put(static_cast<std::uint32_t>(message.tensors.size()));
  for (std::size_t i = 0; i < message.tensors.size(); ++i) {
    const tensor::Tensor& tensor = message.tensors[i];
    writer.put(tensor.dtype());
    writer.put(message.needs_grad[i]);
    writer.put_shape(tensor.shape());
  }
  writer.put(static_cast<std::uint32_t>(message.whole_shapes.size()));
  for (const tensor::Shape& shape : message.whole_shapes) writer.put_shape(shape);
  const Prefix prefix{.magic = kMagic, .bytes = static_cast<std::uint32_t>(writer.bytes().size())};
  std::memcpy(writer.bytes().data(), &prefix, sizeof prefix);
  return std::move(writer.bytes());
}

std::size_t header_size(std::span<const std::byte> first_part) {
  const auto prefix = Reader(first_part).get<Prefix>();
  if (prefix.magic != kMagic) {
    throw CommError(
        "[mpi] expected the header of a message, got something else; do all ranks run "
        "the same build?");
  }
  return prefix.bytes;
}

DecodedHeader decode_header(std::span<const std::byte> bytes) {
  Reader reader(bytes.first(std::min(bytes.size(), header_size(bytes))));
  reader.get<Prefix>();
  DecodedHeader result;
  result.header.batch = reader.get<std::int64_t>();
  result.header.micro_batch = reader.get<std::int32_t>();
  result.header.edge = reader.get<std::int32_t>();
  result.header.kind = reader.get<ChannelKind>();
  result.header.sample_hash = reader.get<std::uint64_t>();
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    TensorFacts& facts = result.tensors.emplace_back();
    facts.dtype = reader.get<tensor::DType>();
    result.needs_grad.push_back(reader.get<std::uint8_t>());
    facts.shape = reader.get_shape();
  }
  for (auto left = reader.get<std::uint32_t>(); left > 0; --left) {
    result.whole_shapes.push_back(reader.get_shape());
  }
  return result;
}

std::vector<std::byte> encode_cause(const FailureCause& cause) {
  constexpr std::size_t kInstructionRoom = 256;
  Writer writer;
  writer.put(std::int32_t{cause.rank});
  writer.put(std::int32_t{cause.stage});
  writer.put(cause.micro_batch);
  writer.put_text(cause.instruction, kInstructionRoom);
  writer.put_text(cause.message, kCauseBytes - writer.bytes().size() - sizeof(std::uint32_t));
  return std::move(writer.bytes());
}

FailureCause decode_cause(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  FailureCause cause;
  cause.rank = reader.get<std::int32_t>();
  cause.stage = reader.get<std::int32_t>();
  cause.micro_batch = reader.get<std::int64_t>();
  cause.instruction = reader.get_text();
  cause.message = reader.get_text();
  return cause;
}

}  // namespace penstock::comm::mpi
