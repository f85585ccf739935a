// What the backends share about collectives: the checks of arguments, and the signature by which
// members notice that they do not call the same thing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "tensor/tensor.h"

namespace penstock::comm {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier
};

// Equal on all members of one collective. Trivially copyable: backends send it.
struct Signature {
  CollectiveKind kind = CollectiveKind::kBarrier;
  tensor::DType dtype = tensor::DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = -1;
  std::uint64_t elements = 0;  // of one member's part: reduce_scatter's out, all_gather's in

  bool operator==(const Signature&) const = default;
  std::size_t bytes() const { return elements * tensor::size_of(dtype); }
  // "all_reduce (sum) of 1024 f32"
  std::string to_string() const;
};

// A collective as one member calls it. `in` and `out` are undefined where the kind has none; for
// all_reduce and broadcast they are the same tensor. Holding the tensors keeps the memory alive.
struct CollectiveCall {
  Signature signature;
  tensor::Tensor in;
  tensor::Tensor out;
};

// Bytes that one member gives.
std::size_t contribution_bytes(const Signature& signature, int size);
// Small contributions are copied at the start and everybody computes the whole result, so that a
// member waits for the others once instead of up to three times.
bool is_staged(const Signature& signature, int size);

// Each checks its arguments for a group of `size` ranks and throws InvalidArgument: defined tensors
// of the device, not sent before if they are written, of fitting sizes and dtypes; no sum of bool.
CollectiveCall all_reduce_call(tensor::Tensor tensor, ReduceOp op,
                               tensor::Device device = tensor::kCpuDevice);
CollectiveCall reduce_scatter_call(tensor::Tensor in, tensor::Tensor out, ReduceOp op, int size,
                                   tensor::Device device = tensor::kCpuDevice);
CollectiveCall all_gather_call(tensor::Tensor in, tensor::Tensor out, int size,
                               tensor::Device device = tensor::kCpuDevice);
CollectiveCall broadcast_call(tensor::Tensor tensor, int root, int rank, int size,
                              tensor::Device device = tensor::kCpuDevice);

// For messages: "[comm] all_reduce (sum) of 4 f32 over ranks 0, 2"
std::string describe(const Signature& signature, std::span<const int> world_ranks);
// "rank 1", "ranks 0, 2"
std::string list_of(std::span<const int> ranks);
// "rank 1 called …, but rank 0 called …; all members must call the same …"
std::string mismatch_text(int rank, const Signature& mine, int other, const Signature& theirs);

// Place of a channel in tables by peer and kind.
inline std::size_t channel_index(int peer, ChannelKind kind) {
  return static_cast<std::size_t>(peer) * 2 + static_cast<std::size_t>(kind);
}

// Checks what isend gets and seals the tensors; returns them unknown to any tape.
Message checked_message(Message message, int peer, int size, bool host_only);
// Throws InvalidArgument unless 0 ≤ peer < size.
void check_peer(std::string_view what, int peer, int size);

}  // namespace penstock::comm
