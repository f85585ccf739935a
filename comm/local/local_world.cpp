#include "comm/local/local_world.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/delay.h"
#include "comm/pause.h"
#include "tensor/error.h"

namespace penstock::comm::local {

LocalWorld::LocalWorld(Hub& hub, std::shared_ptr<Group> group, int rank,
                       const WorldOptions& options)
    : World(options),
      hub_(hub),
      rank_(rank),
      cores_(std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
      all_(*this, std::move(group), rank) {}

LocalWorld::~LocalWorld() = default;

void LocalWorld::poll() {
  check();
  advance_all(active_);
}

void LocalWorld::fail() {
  tell_watchers();
  throw PeerLost(hub_.cause());
}

void LocalWorld::wait_for(Operation& operation) {
  const auto start = Clock::now();
  const auto deadline = start + time_out(options_);
  bool first = true;
  for (;;) {
    const std::uint64_t seen = hub_.bell(rank_).count();
    poll();
    if (advance(operation)) {
      if (!first) waited_ += Clock::now() - start;
      return;
    }
    check_left(operation);
    if (std::exchange(first, false) && size() <= cores_) {
      spin(seen);
    } else if (Clock::now() >= deadline) {
      give_up(operation);
    } else {
      hub_.bell(rank_).sleep_until(wake_time(operation, deadline), seen);
    }
  }
}

Clock::time_point LocalWorld::wake_time(const Operation& operation,
                                        Clock::time_point deadline) const {
  constexpr std::chrono::microseconds kNap{50};
  const bool device = operation.awaits_device() ||
                      std::ranges::any_of(active_, [](const std::shared_ptr<Operation>& other) {
                        return other->awaits_device();
                      });
  return look_again(device ? std::min(deadline, Clock::now() + kNap) : deadline);
}

void LocalWorld::spin(std::uint64_t seen) const {
  const auto start = Clock::now();
  for (auto now = start; now < start + kSpinTime; now = Clock::now()) {
    if (hub_.bell(rank_).count() != seen) return;
    // The system may have put the awaited rank on this very core: let it run.
    if (now < start + kBusyTime) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void LocalWorld::check_left(Operation& operation) {
  const int missing = operation.missing_rank();
  if (missing < 0 || !hub_.has_left(missing)) return;
  // What it did before it left is visible now; if that was not enough, nothing will be.
  for (int poll = 0; poll < kMostPolls; ++poll) {
    if (advance(operation) || operation.missing_rank() != missing) return;
  }
  hub_.abort({.rank = missing,
              .stage = -1,
              .instruction = {},
              .micro_batch = -1,
              .message = "returned while rank " + std::to_string(rank_) + " waited for " +
                         operation.describe()});
  fail();
}

void LocalWorld::close() {
  all_.close();
}

}  // namespace penstock::comm::local

namespace penstock::comm {

namespace {

// Runs one rank's function and keeps what it throws.
void run_rank(local::Hub& hub, const std::shared_ptr<local::Group>& group, int rank,
              const WorldOptions& options, const std::function<void(World&)>& fn,
              std::exception_ptr& thrown) {
  const auto fail = [&](std::string message) {
    thrown = std::current_exception();
    hub.abort({.rank = rank,
               .stage = -1,
               .instruction = {},
               .micro_batch = -1,
               .message = std::move(message)});
  };
  try {
    local::LocalWorld world(hub, group, rank, options);
    fn(world);
    hub.leave(rank);
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("threw something that is not a std::exception");
  }
}

}  // namespace

void run_local(int ranks, const WorldOptions& options, const std::function<void(World&)>& fn) {
  if (ranks < 1) {
    throw tensor::InvalidArgument("[comm] a local world needs 1 rank or more, got " +
                                  std::to_string(ranks));
  }
  local::Hub hub(ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto group = hub.make_group(members);
  std::vector<std::exception_ptr> thrown(members.size());
  {
    std::vector<std::jthread> threads;
    for (const int rank : members) {
      try {
        threads.emplace_back([&, rank] {
          run_rank(hub, group, rank, options, fn, thrown[static_cast<std::size_t>(rank)]);
        });
      } catch (const std::system_error& error) {  // the machine has no more threads
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        hub.abort({.rank = rank,
                   .stage = -1,
                   .instruction = {},
                   .micro_batch = -1,
                   .message = std::string("could not start: ") + error.what()});
        break;
      }
    }
  }
  if (!hub.aborted()) return;
  // The rank that failed first says best what happened; the others only say that it was lost. A
  // rank that left without failing has nothing to say.
  const auto first = static_cast<std::size_t>(hub.cause().rank);
  if (first < thrown.size() && thrown[first] != nullptr) std::rethrow_exception(thrown[first]);
  for (const std::exception_ptr& exception : thrown) {
    if (exception != nullptr) std::rethrow_exception(exception);
  }
}

}  // namespace penstock::comm
