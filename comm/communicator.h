// Communicator: a group of ranks that send to each other and reduce together.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/message.h"
#include "comm/work.h"
#include "tensor/tensor.h"

namespace penstock::comm {

enum class ReduceOp : std::uint8_t { kSum, kMin, kMax };

// Every member calls the collectives of a communicator in the same order with matching arguments;
// a mismatch of kind, dtype or size is an error on the members that can see it. All calls start
// work and never wait, unless they say so. Ranks here are ranks of the group.
//
// Reductions give the same bits on every member and on every transport: contributions are added in
// ascending group rank, in f32 for the 16-bit types.
//
// One communicator belongs to one rank and its thread. close() is collective and must be called
// before the world closes; the destructor only frees what is local.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Point to point. The work is done when the peer has reached the matching receive.
  virtual Work isend(Message message, int peer, ChannelKind kind) = 0;
  // Memory for what arrives by copy comes from the allocator; in one process the sender's storage
  // itself is handed over.
  virtual ReceiveWork irecv(int peer, ChannelKind kind,
                            std::shared_ptr<tensor::Allocator> allocator) = 0;

  // In place; any dtype but bool for kSum. Integers wrap around; a NaN makes minimum and maximum
  // NaN. The tensors of a collective must not be touched until its work is done.
  virtual Work all_reduce(tensor::Tensor tensor, ReduceOp op) = 0;
  // in has size() × out.numel() elements; member r receives the reduced r-th part. out may be that
  // part of in; otherwise they must not overlap.
  virtual Work reduce_scatter(tensor::Tensor in, tensor::Tensor out, ReduceOp op) = 0;
  // out has size() × in.numel() elements, parts in group rank order. in may be this member's part
  // of out; otherwise they must not overlap.
  virtual Work all_gather(tensor::Tensor in, tensor::Tensor out) = 0;
  virtual Work broadcast(tensor::Tensor tensor, int root) = 0;
  virtual Work barrier() = 0;

  // Collective, and waits. Members with the same color (≥ 0) form a group, ordered by key, then by
  // rank here; color -1 joins none and gets null.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // Collective, and waits for all started work.
  virtual void close() = 0;

  // Small host-side collectives, made of the above; they wait.
  void all_reduce_wait(std::span<std::int64_t> values, ReduceOp op);
  void all_reduce_wait(std::span<double> values, ReduceOp op);
  // Every member gives equally many values; the result holds them in group rank order.
  std::vector<std::int64_t> all_gather_wait(std::span<const std::int64_t> values);
  std::vector<std::string> all_gather_text(std::string_view text);

 protected:
  Communicator();
  const std::shared_ptr<tensor::Allocator>& host_memory() const { return host_memory_; }

 private:
  // For tensors that are the communicator's own; shared because their storages keep it alive.
  std::shared_ptr<tensor::Allocator> host_memory_;
};

// What all_gather_text() gave, for a message that tells who says what; ranks without a text are
// left out: "ranks 0, 2: text; rank 1: other text", or "all ranks: text".
std::string by_rank(std::span<const std::string> texts);

}  // namespace penstock::comm
