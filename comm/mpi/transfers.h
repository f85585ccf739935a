// Messages between two ranks over MPI: a header, then each tensor straight from and into its
// storage.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/delay.h"
#include "comm/message.h"
#include "comm/mpi/requests.h"
#include "comm/mpi/wire.h"
#include "comm/work.h"

namespace penstock::comm::mpi {

// The two lanes of a channel. Headers have their own, since a receive for the next header is posted
// while the body of a message is still under way.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;
  int peer = 0;  // world rank
  int tag = 0;   // of headers; bodies use tag + 1
  ChannelKind kind = ChannelKind::kActivation;

  Lane headers() const { return {comm, peer, tag}; }
  Lane bodies() const { return {comm, peer, tag + 1}; }
};

// A message on its way out. Tensors are sent synchronously: the operation completes when the peer
// has reached the matching receive, whatever the size.
class SendOperation final : public Operation {
 public:
  SendOperation(Message message, const Channel& channel);

  bool advance() override;
  std::string describe() const override;
  int missing_rank() const override { return channel_.peer; }

 private:
  Message message_;  // owns the storages until the transfers are done
  Channel channel_;
  std::vector<std::byte> header_;
  Requests requests_;
  [[no_unique_address]] Delay delay_;
};

class MpiReceive;

// The receiver's end of a channel. Headers go to the posted receives in their order.
class Inlet {
 public:
  explicit Inlet(const Channel& channel) : channel_(channel) {}
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;

  const Channel& channel() const { return channel_; }
  void post(std::shared_ptr<MpiReceive> receive);
  // Gives arrived headers to the receives that wait for them.
  void match();
  // Withdraws the receive that is kept posted, and forgets the receives that wait. Must be called
  // before the destructor, except after an abort, when MPI is not called again.
  void close() noexcept;

 private:
  void post_header();

  Channel channel_;
  std::array<std::byte, kHeaderBytes> header_{};
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::deque<std::shared_ptr<MpiReceive>> posted_;
};

// A message on its way in: header (given by the inlet), the rest of a long header, tensors.
class MpiReceive final : public ReceiveOperation {
 public:
  MpiReceive(std::shared_ptr<Inlet> inlet, std::shared_ptr<tensor::Allocator> allocator)
      : inlet_(std::move(inlet)), allocator_(std::move(allocator)) {}

  bool advance() override;
  Message take() override { return std::move(message_); }
  std::string describe() const override;
  int missing_rank() const override { return inlet_->channel().peer; }

  // Called by the inlet when it is this receive's turn.
  bool begun() const { return state_ != State::kWaiting; }
  void begin(std::span<const std::byte> first_part);
  // True once the receives of all tensors are posted, so that the next message may begin.
  bool tensors_posted();

 private:
  enum class State { kWaiting, kHeader, kTensors, kDone };
  void post_tensors();

  std::shared_ptr<Inlet> inlet_;  // shared with the communicator and the world
  std::shared_ptr<tensor::Allocator> allocator_;
  State state_ = State::kWaiting;
  std::vector<std::byte> header_;
  Message message_;
  Requests requests_;
  [[no_unique_address]] Delay delay_;
};

}  // namespace penstock::comm::mpi
