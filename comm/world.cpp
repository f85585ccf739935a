#include "comm/world.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "comm/pause.h"

namespace penstock::comm {

std::chrono::nanoseconds time_out(const WorldOptions& options) {
  constexpr double kYear = 366.0 * 24 * 3600;
  const std::chrono::duration<double> seconds(std::clamp(options.timeout_seconds, 0.0, kYear));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(seconds);
}

void World::kill_job(int status) noexcept {
  kill_others(status);
  std::_Exit(status);
}

bool World::advance(Operation& operation) {
  try {
    return operation.advance();
  } catch (const CommError& error) {
    abort({.rank = rank(),
           .stage = -1,
           .instruction = {},
           .micro_batch = -1,
           .message = error.what()});
    tell_watchers();
    throw;
  }
}

void World::advance_all(std::vector<std::shared_ptr<Operation>>& operations) {
  // Not std::erase_if: when advance() throws, that leaves moved-from entries behind. An operation
  // that is made of others may start some, and even wait for one, which comes by here again.
  for (std::size_t i = 0; i < operations.size();) {
    const Operation* const operation = operations[i].get();
    if (!advance(*operations[i])) {
      ++i;
    } else if (i < operations.size() && operations[i].get() == operation) {
      operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void World::wait_for_device(tensor::Fence& fence) {
  constexpr std::chrono::milliseconds kYieldTime{1};
  constexpr std::chrono::microseconds kNap{50};
  const auto start = std::chrono::steady_clock::now();
  while (!fence.reached()) {
    poll();
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited < kSpinTime) {
      pause();
    } else if (waited < kYieldTime) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  fence.wait();  // tells what the device found wrong with data
}

void World::tell_watchers() noexcept {
  for (Watcher* watcher : std::exchange(watchers_, {})) watcher->world_aborted();
}

void World::give_up(const Operation& operation) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", options_.timeout_seconds);
  const int missing = operation.missing_rank();
  std::string message = std::string(" waited ") + seconds + " s for " + operation.describe();
  if (missing >= 0) message += "; rank " + std::to_string(missing) + " did not come";
  message += "; see whether that rank failed or is slow, or raise the time-out";
  abort({.rank = rank(),
         .stage = -1,
         .instruction = {},
         .micro_batch = -1,
         .message = "[comm]" + message});
  tell_watchers();
  throw TimedOut("[comm] rank " + std::to_string(rank()) + message);
}

LongWaits::LongWaits(World& world, double seconds)
    : world_(world), before_(world.options_.timeout_seconds) {
  world_.options_.timeout_seconds = std::max(before_, seconds);
}

LongWaits::~LongWaits() {
  world_.options_.timeout_seconds = before_;
}

bool launched_by_mpi() {
  // Open MPI, PMIx (Slurm, PRRTE), PMI (MPICH, Intel MPI, Slurm).
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

}  // namespace penstock::comm
