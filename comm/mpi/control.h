// Control: how the first cause of a failure reaches all ranks. One receive is always posted.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/error.h"
#include "comm/mpi/requests.h"
#include "comm/mpi/wire.h"

namespace penstock::comm::mpi {

class Control {
 public:
  // Takes the communicator, which nothing else uses.
  explicit Control(MPI_Comm comm);

  // Any thread. Keeps the cause if it is the first.
  void set_cause(const FailureCause& cause) noexcept;
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  FailureCause cause() const;

  // The rank's thread. Looks whether another rank has failed; takes its cause.
  void listen();
  // The rank's thread, once the cause is set: tells all other ranks, at most once, and not at all
  // if the cause came from another rank, which tells all itself. Helps the messages out for a
  // moment, but waits for nobody.
  void tell() noexcept;
  // Withdraws the posted receive; orderly end only.
  void close();

 private:
  void post();

  MPI_Comm comm_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::array<std::byte, kCauseBytes> buffer_{};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // guards cause_
  FailureCause cause_;
  bool told_ = false;
  std::vector<std::byte> outgoing_;  // stays until the process ends
  Requests sends_;
};

}  // namespace penstock::comm::mpi
