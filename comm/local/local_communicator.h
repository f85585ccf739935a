// One rank's end of a local group.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/local/group.h"

namespace penstock::comm::local {

class LocalWorld;
class LocalReceive;

// The receiver's end of a channel: receives in the order they were posted, which is the order in
// which parcels go to them.
struct Inlet {
  Mailbox* mailbox = nullptr;
  std::deque<std::shared_ptr<LocalReceive>> posted;

  void match();
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(LocalWorld& world, std::shared_ptr<Group> group, int rank);
  ~LocalCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
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
  void check_open() const;

  LocalWorld& world_;
  std::shared_ptr<Group> group_;
  int rank_;
  std::vector<Inlet> inlets_;  // by peer, then kind
  // Sends that may be under way, by peer, then kind; the front is dropped once taken.
  std::vector<std::deque<std::shared_ptr<Parcel>>> sent_;
  std::vector<std::shared_ptr<Operation>> collectives_;  // that may be under way
  std::uint64_t collective_count_ = 0;
  int split_count_ = 0;
  bool closed_ = false;
};

}  // namespace penstock::comm::local
