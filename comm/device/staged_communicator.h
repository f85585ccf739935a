// StagedCommunicator: tensors of a device travel through memory of the host.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device/staged_operation.h"
#include "comm/world.h"

namespace penstock::comm::device {

// Takes tensors of this rank's device and of the host. Reductions give the bits that the host's
// communicator gives.
//
// Nothing waits for a device on the host. What a work that is done has brought is seen by what is
// queued on the memory's device from then on.
class StagedCommunicator final : public Communicator {
 public:
  enum class Messages {
    kHandedOver,  // by the host's communicator, whose ranks are of one process
    kStaged
  };

  // Collective, and waits. `pinned` is memory of the host.
  StagedCommunicator(World& world, std::unique_ptr<Communicator> host, Messages messages,
                     std::shared_ptr<tensor::Allocator> memory,
                     std::shared_ptr<tensor::Allocator> pinned);

  int rank() const override { return stage_->host->rank(); }
  int size() const override { return stage_->host->size(); }
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
  Work start(std::shared_ptr<Delayed> operation, const std::shared_ptr<Line>& line);
  // Waits for what was started and has not completed.
  void wait_for_all();
  void check_open() const;
  // Where a collective on this tensor takes place; an undefined one is refused there.
  tensor::Device device_of(const tensor::Tensor& tensor) const;

  std::shared_ptr<Stage> stage_;  // shared with the operations under way
  Messages messages_;
  std::shared_ptr<Line> collectives_ = std::make_shared<Line>();
  std::vector<std::shared_ptr<Line>> sends_;      // by peer, then kind
  std::deque<std::shared_ptr<Delayed>> started_;  // that may be under way
  bool closed_ = false;
};

}  // namespace penstock::comm::device
