// A group of ranks that are processes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/collective_operation.h"
#include "comm/mpi/transfers.h"

namespace penstock::comm::mpi {

class MpiWorld;

// Has no MPI communicator of its own: its number is part of the tags on the world's. So making one
// needs no MPI call that could wait for a lost peer for ever.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWorld& world, std::int64_t id, std::vector<int> world_ranks, int rank);
  ~MpiCommunicator() override;

  int rank() const override { return members_->rank; }
  int size() const override { return members_->size(); }
  Work isend(Message message, int peer, ChannelKind kind) override;
  ReceiveWork irecv(int peer, ChannelKind kind,
                    std::shared_ptr<tensor::Allocator> allocator) override;
  Work all_reduce(tensor::Tensor tensor, ReduceOp op) override;
  Work reduce_scatter(tensor::Tensor in, tensor::Tensor out, ReduceOp op) override;
  Work all_gather(tensor::Tensor in, tensor::Tensor out) override;
  Work broadcast(tensor::Tensor tensor, int root) override;
  Work barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void close() override;

 private:
  Work start(CollectiveCall call);
  Channel channel(int peer, ChannelKind kind) const;
  void check_open();
  void withdraw() noexcept;

  MpiWorld& world_;
  std::int64_t id_;
  std::shared_ptr<const Members> members_;              // shared with the collectives under way
  std::vector<std::shared_ptr<Inlet>> inlets_;          // by peer, then kind; made when first used
  std::deque<std::shared_ptr<Operation>> sends_;        // that may be under way
  std::deque<std::shared_ptr<Operation>> collectives_;  // that may be under way
  std::int64_t collective_count_ = 0;
  bool closed_ = false;
};

}  // namespace penstock::comm::mpi
