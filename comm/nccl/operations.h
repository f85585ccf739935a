// The steps of communications over NCCL. What is on the host travels by the host's communicator.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/communicator.h"
#include "comm/nccl/lane.h"

namespace penstock::comm::nccl {

// What the operations of one communicator share with it, and outlive it with.
struct Plane {
  World& world;
  std::shared_ptr<Communicator> host;
  std::shared_ptr<tensor::Allocator> memory;       // of this rank's device
  std::shared_ptr<tensor::Allocator> host_memory;  // for what comes by the host
  std::vector<int> world_ranks{};                  // of the members

  int world_rank(int member) const { return world_ranks[static_cast<std::size_t>(member)]; }
};

// Tensors of a message that a rank sends to itself; they are handed over.
struct Loop {
  std::vector<tensor::Tensor> tensors;
  std::shared_ptr<tensor::Fence> computed;
};

// The two ends of a channel on this rank.
struct Outlet {
  std::shared_ptr<Lane> lane;  // null to this rank itself, and where no link was asked for
  std::int64_t sent = 0;       // messages
};
class NcclReceive;
struct Inlet {
  std::shared_ptr<Lane> lane;
  std::int64_t begun = 0;                           // messages
  std::deque<std::shared_ptr<NcclReceive>> posted;  // that have not begun
  std::deque<Loop> loops;                           // from this rank itself

  // Lets the receives begin whose message has come, in the order in which they were posted.
  void match();
};

// Done when the peer has reached the receive and the device has got the transfer.
class NcclSend final : public Operation {
 public:
  NcclSend(std::shared_ptr<Plane> plane, Work message, std::shared_ptr<Ticket> ticket, int peer,
           ChannelKind kind);

  bool advance() override;
  std::string describe() const override;
  int missing_rank() const override { return message_.missing_rank(); }

 private:
  std::shared_ptr<Plane> plane_;
  Work message_;
  std::shared_ptr<Ticket> ticket_;  // null when nothing travels by NCCL
  int peer_;
  ChannelKind kind_;
};

// Done when the device has got the transfer and the memory's queue waits for it.
class NcclReceive final : public ReceiveOperation {
 public:
  NcclReceive(std::shared_ptr<Plane> plane, std::shared_ptr<Inlet> inlet, ReceiveWork inner,
              std::shared_ptr<tensor::Allocator> memory, int peer, ChannelKind kind);

  bool advance() override;
  Message take() override { return std::move(message_); }
  std::string describe() const override;
  int missing_rank() const override { return begun_ ? -1 : inner_.missing_rank(); }

  // Begins if its message has come.
  bool try_begin();

 private:
  void receive(std::vector<tensor::Tensor*> tensors);
  void take_loop(std::span<tensor::Tensor*> tensors);

  std::shared_ptr<Plane> plane_;
  std::shared_ptr<Inlet> inlet_;  // shared with the communicator
  ReceiveWork inner_;
  std::shared_ptr<tensor::Allocator> memory_;
  int peer_;
  ChannelKind kind_;
  bool begun_ = false;
  Message message_;
  std::shared_ptr<Ticket> ticket_;
};

// Done when the device has got it and the memory's queue waits for it. The latter holds up what is
// computed next, so only who asks whether it is done moves it on; the world moves its lane on.
class NcclCollective final : public Operation {
 public:
  NcclCollective(std::shared_ptr<Plane> plane, CollectiveCall call, std::shared_ptr<Ticket> ticket)
      : plane_(std::move(plane)), call_(std::move(call)), ticket_(std::move(ticket)) {}

  bool advance() override;
  std::string describe() const override {
    return comm::describe(call_.signature, plane_->world_ranks);
  }

 private:
  std::shared_ptr<Plane> plane_;
  CollectiveCall call_;
  std::shared_ptr<Ticket> ticket_;
};

// Members that do not call the same are an error, though NCCL would not say so. The comparison
// goes by the host and holds no collective up.
class SignatureCheck final : public Operation {
 public:
  SignatureCheck(std::shared_ptr<Plane> plane, const Signature& mine);

  bool advance() override;
  std::string describe() const override { return comm::describe(mine_, plane_->world_ranks); }
  int missing_rank() const override { return gather_.missing_rank(); }

 private:
  std::shared_ptr<Plane> plane_;
  Signature mine_;
  tensor::Tensor all_;
  Work gather_;
};

}  // namespace penstock::comm::nccl
