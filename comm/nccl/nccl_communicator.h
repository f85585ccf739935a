// NcclCommunicator: tensors of devices travel by NCCL, all else by the host's communicator.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "comm/collective.h"
#include "comm/communicator.h"
#include "comm/device/devices.h"
#include "comm/nccl/operations.h"

namespace penstock::comm::nccl {

// Each channel (an ordered pair of linked members, and a kind) has a communicator of NCCL's and a
// stream of its own, and so have the collectives of the group: transfers never wait for others
// that they do not depend on. All are connected when this is made, in one order on all members.
//
// Nothing waits for a device on the host. What a work that is done has brought is seen by what is
// queued on the memory's device from then on.
class NcclCommunicator final : public Communicator {
 public:
  // Collective, and waits.
  NcclCommunicator(World& world, std::unique_ptr<Communicator> host,
                   std::shared_ptr<tensor::Allocator> memory, Links links);
  ~NcclCommunicator() override;

  int rank() const override { return plane_->host->rank(); }
  int size() const override { return plane_->host->size(); }
  Work isend(Message message, int peer, ChannelKind kind) override;
  ReceiveWork irecv(int peer, ChannelKind kind,
                    std::shared_ptr<tensor::Allocator> allocator) override;
  Work all_reduce(tensor::Tensor tensor, ReduceOp op) override;
  Work reduce_scatter(tensor::Tensor in, tensor::Tensor out, ReduceOp op) override;
  Work all_gather(tensor::Tensor in, tensor::Tensor out) override;
  Work broadcast(tensor::Tensor tensor, int root) override;
  Work barrier() override { return plane_->host->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void close() override;

 private:
  using Start = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  void connect();
  // Collective over the members: connects them, and transfers a byte.
  std::shared_ptr<Lane> make_lane(const Lane::Members& members, const tensor::Tensor& byte,
                                  Start first);
  Work start(CollectiveCall call, Start start);
  // Gives the tensors of a message to the peer's device; null when that needs no NCCL.
  std::shared_ptr<Ticket> start_send(std::vector<tensor::Tensor> tensors, int peer,
                                     ChannelKind kind);
  Work add(std::shared_ptr<Operation> operation);
  void check_open() const;

  std::shared_ptr<Plane> plane_;  // shared with the operations under way
  Links links_;
  std::vector<std::shared_ptr<Lane>> lanes_;        // all, in the order of their making
  std::shared_ptr<Lane> group_;                     // of collectives; null for a group of one
  std::vector<Outlet> outlets_;                     // by peer, then kind
  std::vector<std::shared_ptr<Inlet>> inlets_;      // by peer, then kind; shared with the receives
  std::deque<std::shared_ptr<Operation>> started_;  // sends and checks that may be under way
  bool closed_ = false;
};

}  // namespace penstock::comm::nccl
