// Lane: a communicator of NCCL's, and the stream on which its calls run in their order.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nccl.h>

#include "comm/work.h"
#include "comm/world.h"
#include "tensor/cuda/side_stream.h"
#include "tensor/fence.h"
#include "tensor/tensor.h"

namespace penstock::comm::nccl {

// A call of NCCL's on its way to the device.
class Ticket {
 public:
  // The device has got it.
  bool queued() const { return fence_ != nullptr; }
  // What is queued in the memory from now on sees what the call brought, and may release its
  // tensors; once queued.
  void follow(tensor::Allocator& memory) {
    memory.wait_for(*fence_);
    keep_.clear();
  }
  // The other side is known to have come. From then on the lane's watch runs.
  void arm() { armed_ = true; }

 private:
  friend class Lane;
  std::shared_ptr<tensor::Fence> fence_;
  std::vector<tensor::Tensor> keep_;
  bool armed_ = true;
};

// NCCL's calls never make the rank wait: they may go on in the background (it has to connect two
// ranks before their first transfer), and then the lane's next call has to wait its turn. Work that
// the device does not finish in the world's time-out, counted from when nothing of this rank's own
// was in its way, is an error, which ends NCCL's work on this rank, as any abort of the world does.
class Lane final : public World::Watcher, public std::enable_shared_from_this<Lane> {
 public:
  struct Members {
    ncclUniqueId id;
    int size;
    int rank;
    int most_blocks;   // that a kernel of NCCL's may have, or 0 for its own choice
    std::string text;  // for messages: "the activation channel from rank 0 to rank 1"
  };
  struct Call {
    std::function<ncclResult_t(ncclComm_t, cudaStream_t)> start;
    std::shared_ptr<tensor::Fence> before;  // the device gets there first; null: nothing
    std::vector<tensor::Tensor> keep;       // until the device is done, or follow()
    std::string text;
    bool armed = true;  // else the ticket will be
  };

  // Begins to connect the members, which all begin; wait() then waits for that.
  Lane(World& world, int device, const Members& members);
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  std::shared_ptr<Ticket> push(Call call);
  const std::shared_ptr<tensor::cuda::SideStream>& stream() const { return stream_; }

  // Until the device is done with all calls. Throws what the world's waits throw.
  void wait();
  // wait(), then leaves NCCL's communicator, as all members do.
  void close();

  // True when there is nothing left to do. For who drives the lane.
  bool advance();
  std::string describe() const;

  void world_aborted() noexcept override;

 private:
  struct Flight {
    Call call;
    std::shared_ptr<Ticket> ticket;
  };

  // What NCCL does in the background for this lane is over.
  bool settled() const;
  void begin_call(const Flight& flight);
  void end_call();
  // Throws TimedOut when the flight in front takes too long.
  void watch();

  World& world_;
  std::string text_;
  std::shared_ptr<tensor::cuda::SideStream> stream_;  // shared with memory for what arrives
  ncclComm_t comm_ = nullptr;                         // null once closed or aborted
  bool connected_ = false;
  bool calling_ = false;    // flights_[queued_] is with NCCL
  std::size_t queued_ = 0;  // flights, from the front, that the device has got
  std::deque<Flight> flights_;
  std::optional<std::chrono::steady_clock::time_point> since_;  // the front one is on its own
  std::weak_ptr<Operation> driver_;                             // the world's, while it has one
};

}  // namespace penstock::comm::nccl
