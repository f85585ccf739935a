#include "comm/mpi/control.h"

#include <chrono>
#include <thread>

namespace penstock::comm::mpi {

Control::Control(MPI_Comm comm) : comm_(comm) {
  post();
}

void Control::post() {
  PENSTOCK_MPI_CALL(MPI_Irecv(buffer_.data(), static_cast<int>(buffer_.size()), MPI_BYTE,
                              MPI_ANY_SOURCE, 0, comm_, &request_));
}

void Control::set_cause(const FailureCause& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return;
  try {
    cause_ = cause;
  } catch (...) {  // no memory for the text: the rank alone has to do
    cause_.rank = cause.rank;
  }
  failed_.store(true, std::memory_order_release);
}

FailureCause Control::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Control::listen() {
  if (request_ == MPI_REQUEST_NULL) return;
  int arrived = 0;
  MPI_Status status;
  PENSTOCK_MPI_CALL(MPI_Test(&request_, &arrived, &status));
  if (arrived == 0) return;
  int bytes = 0;
  PENSTOCK_MPI_CALL(MPI_Get_count(&status, MPI_BYTE, &bytes));
  if (!failed()) told_ = true;  // by the rank that sent it
  set_cause(decode_cause(std::span(buffer_).first(static_cast<std::size_t>(bytes))));
}

void Control::tell() noexcept {
  if (told_) return;
  told_ = true;
  try {
    int rank = 0;
    int size = 0;
    PENSTOCK_MPI_CALL(MPI_Comm_rank(comm_, &rank));
    PENSTOCK_MPI_CALL(MPI_Comm_size(comm_, &size));
    outgoing_ = encode_cause(cause());
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) sends_.send({comm_, peer, 0}, outgoing_.data(), outgoing_.size());
    }
    constexpr std::chrono::milliseconds kMoment{100};
    const auto end = std::chrono::steady_clock::now() + kMoment;
    while (!sends_.done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  } catch (...) {  // this rank has failed anyway; those that cannot be told run into their time-out
  }
}

void Control::close() {
  PENSTOCK_MPI_CALL(MPI_Cancel(&request_));
  PENSTOCK_MPI_CALL(MPI_Wait(&request_, MPI_STATUS_IGNORE));
  PENSTOCK_MPI_CALL(MPI_Comm_free(&comm_));
}

}  // namespace penstock::comm::mpi
