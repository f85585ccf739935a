#include "comm/mpi/mpi_world.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <sched.h>

#include "comm/mpi/tags.h"
#include "comm/pause.h"
#include "tensor/error.h"

namespace penstock::comm::mpi {

namespace {

using Clock = std::chrono::steady_clock;

// Spins while it is likely that the other side is about to come, then gives the core to whoever
// wants it, and in a long wait sleeps. MPI has no way to be woken, and a nap takes 50 us more than
// it should: naps begin when that is about a hundredth of the wait.
void idle(Clock::duration waited, bool spins) {
  constexpr std::chrono::milliseconds kYieldTime{5};
  constexpr std::chrono::microseconds kLongestNap{200};
  if (spins && waited < kSpinTime) {
    pause();
  } else if (waited < kYieldTime) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::min<Clock::duration>(waited / 100, kLongestNap));
  }
}

MPI_Comm duplicate_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  PENSTOCK_MPI_CALL(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  PENSTOCK_MPI_CALL(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  return comm;
}

void initialise() {
  int initialized = 0;
  PENSTOCK_MPI_CALL(MPI_Initialized(&initialized));
  if (initialized != 0) {
    throw CommError("[mpi] MPI is initialised already; a process has one MPI world, made once");
  }
  int provided = MPI_THREAD_SINGLE;
  PENSTOCK_MPI_CALL(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  if (provided < MPI_THREAD_SERIALIZED) {
    throw tensor::Unsupported(
        "[mpi] this MPI lets only the main thread call it; MPI_THREAD_SERIALIZED is needed");
  }
  PENSTOCK_MPI_CALL(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
}

}  // namespace

MpiWorld::MpiWorld(const WorldOptions& options) : World(options) {
  initialise();
  PENSTOCK_MPI_CALL(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  PENSTOCK_MPI_CALL(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  find_host();
  message_comm_ = duplicate_world();
  collective_comm_ = duplicate_world();
  control_.emplace(duplicate_world());
  int* largest_tag = nullptr;
  int found = 0;
  PENSTOCK_MPI_CALL(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &found));
  max_groups_ = max_groups(found != 0 ? *largest_tag : 32767);
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  all_ = std::make_unique<MpiCommunicator>(*this, 0, std::move(ranks), rank_);
}

MpiWorld::~MpiWorld() {
  // Nothing after an abort, but to pass on one that another thread of this rank has called.
  if (!closed_ && aborted()) control_->tell();
}

void MpiWorld::find_host() {
  MPI_Comm host = MPI_COMM_NULL;
  PENSTOCK_MPI_CALL(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host));
  PENSTOCK_MPI_CALL(MPI_Comm_size(host, &host_size_));
  PENSTOCK_MPI_CALL(MPI_Comm_rank(host, &host_rank_));
  PENSTOCK_MPI_CALL(MPI_Allreduce(&rank_, &host_leader_, 1, MPI_INT, MPI_MIN, host));
  // The launcher may have tied each rank to a few cores of its own.
  cpu_set_t mine;
  cpu_set_t all;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_SET(0, &mine);
  PENSTOCK_MPI_CALL(MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, host));
  host_cores_ = CPU_COUNT(&all);
  PENSTOCK_MPI_CALL(MPI_Comm_free(&host));
}

void MpiWorld::check() {
  if (closed_) throw CommError("[comm] this world is closed");
  if (!control_->failed()) return;
  control_->tell();
  tell_watchers();
  throw PeerLost(control_->cause());
}

void MpiWorld::poll() {
  check();
  // Asking MPI costs more than an instruction's overhead may; a failure can wait this long.
  constexpr std::chrono::microseconds kInterval{100};
  const auto now = Clock::now();
  if (now - listened_ >= kInterval) {
    listened_ = now;
    control_->listen();
    check();
  }
  advance_all(active_);
}

void MpiWorld::wait_for(Operation& operation) {
  const auto start = Clock::now();
  const auto limit = time_out(options_);
  for (bool first = true;; first = false) {
    poll();
    if (advance(operation)) {
      if (!first) waited_ += Clock::now() - start;
      return;
    }
    const auto waited = Clock::now() - start;
    if (waited >= limit) give_up(operation);
    idle(waited, host_size_ <= host_cores_);
  }
}

void MpiWorld::abort(const FailureCause& cause) noexcept {
  if (closed_) return;
  control_->set_cause(cause);
  // All MPI calls are the rank's own thread's; for another, that one tells when it comes by.
  if (std::this_thread::get_id() == thread_) control_->tell();
}

void MpiWorld::close() {
  all_->close();
  for (const auto& inlet : inlets_) inlet->close();  // of communicators that were not closed
  control_->close();
  closed_ = true;
  PENSTOCK_MPI_CALL(MPI_Comm_free(&message_comm_));
  PENSTOCK_MPI_CALL(MPI_Comm_free(&collective_comm_));
  PENSTOCK_MPI_CALL(MPI_Finalize());
}

void MpiWorld::remove_inlet(const Inlet& inlet) noexcept {
  std::erase_if(inlets_, [&](const auto& other) { return other.get() == &inlet; });
}

void MpiWorld::reserve_groups(std::int64_t next_group) {
  if (next_group > max_groups_) {
    throw tensor::Unsupported("[mpi] this MPI's tags allow for " + std::to_string(max_groups_) +
                              " communicators, and all have been made");
  }
  next_group_ = next_group;
}

}  // namespace penstock::comm::mpi

namespace penstock::comm {

std::unique_ptr<World> make_mpi_world(const WorldOptions& options) {
  return std::make_unique<mpi::MpiWorld>(options);
}

}  // namespace penstock::comm
