// What crosses a stage edge: tensors, and the facts about them that the receiver checks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace penstock::comm {

// A channel is (ordered pair of ranks, kind). On a channel, messages arrive in send order.
enum class ChannelKind : std::uint8_t { kActivation, kGradient };

constexpr std::string_view name_of(ChannelKind kind) {
  return kind == ChannelKind::kActivation ? "activation" : "gradient";
}

// Says which transfer this is, so that a stale or crossed message is an error at once.
struct MessageHeader {
  std::int64_t batch = 0;        // number of the train or eval call, as counted by the engine
  std::int32_t micro_batch = 0;  // within the batch, of this replica
  std::int32_t edge = 0;         // the global stage that is earlier in the pipe, of the two
  ChannelKind kind = ChannelKind::kActivation;
  std::uint64_t sample_hash = 0;  // of the micro batch's global sample ids

  bool operator==(const MessageHeader&) const = default;
};

// Tensors of any number, shape and dtype, bit for bit. Sending seals their storages: they are
// immutable on both ranks from then on. needs_grad[i] says whether the receiver must send a
// gradient of tensors[i] back.
struct Message {
  MessageHeader header;
  std::vector<tensor::Tensor> tensors;
  std::vector<std::uint8_t> needs_grad;
  // Where tensors are pieces of larger ones: by tensor, the shape of the whole one (of a tensor
  // that is no piece its own). Else empty. Travels along, and means nothing to a transport.
  std::vector<tensor::Shape> whole_shapes = {};
};

}  // namespace penstock::comm
