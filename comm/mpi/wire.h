// How a message's header, and a failure's cause, look as bytes. Both ends run the same build on
// like machines, so numbers go in their own representation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/error.h"
#include "comm/message.h"

namespace penstock::comm::mpi {

// Every message begins with one MPI message of at most this size, for which a receive is kept
// posted. It holds about 16 matrices' shapes; what does not fit follows in another.
inline constexpr std::size_t kHeaderBytes = 512;

// Everything about a message but its elements.
std::vector<std::byte> encode_header(const Message& message);

// Bytes of the whole header, read from its first part.
std::size_t header_size(std::span<const std::byte> first_part);

struct TensorFacts {
  tensor::Shape shape;
  tensor::DType dtype = tensor::DType::kF32;
};
struct DecodedHeader {
  MessageHeader header;
  std::vector<TensorFacts> tensors;
  std::vector<std::uint8_t> needs_grad;
  std::vector<tensor::Shape> whole_shapes;
};
// Throws CommError when the bytes are no header.
DecodedHeader decode_header(std::span<const std::byte> bytes);

// Below every transport's eager limit, so that the sender needs no help from the receiver.
inline constexpr std::size_t kCauseBytes = 2048;

// Texts that do not fit are cut.
std::vector<std::byte> encode_cause(const FailureCause& cause);
FailureCause decode_cause(std::span<const std::byte> bytes);

}  // namespace penstock::comm::mpi
