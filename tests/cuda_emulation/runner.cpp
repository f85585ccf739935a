#include "tests/cuda_emulation/runner.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "tests/cuda_emulation/fault.h"
#include "tests/cuda_emulation/poison.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace penstock::cuda_emulation {

namespace {

constexpr std::size_t kSharedGuard = 256;

std::string text(const uint3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) +
         ")";
}

uint3 position(std::size_t index, const dim3& extent) {
  return {static_cast<unsigned>(index % extent.x),
          static_cast<unsigned>(index / extent.x % extent.y),
          static_cast<unsigned>(index / extent.x / extent.y)};
}

std::size_t volume(const dim3& extent) {
  return static_cast<std::size_t>(extent.x) * extent.y * extent.z;
}

// Goes through 0 … count - 1 in an order of its own.
class Order {
 public:
  Order(std::size_t count, Random& random) : count_(count), at_(random.below(count)) {
    do {
      stride_ = 1 + random.below(count);
    } while (std::gcd(stride_, count) != 1);
  }
  std::size_t next() { return at_ = (at_ + stride_) % count_; }

 private:
  std::size_t count_;
  std::size_t at_;
  std::size_t stride_ = 1;
};

}  // namespace

Runner*& Runner::running() {
  constinit thread_local static Runner* runner = nullptr;
  return runner;
}

Runner::Runner(const Grid& grid) : grid_(grid), random_(grid.seed), threads_(volume(grid.threads)) {
  positions_.reserve(threads_);
  for (std::size_t i = 0; i < threads_; ++i) positions_.push_back(position(i, grid.threads));
  shared_.reset(static_cast<std::byte*>(
      ::operator new (grid.shared_bytes + kSharedGuard, std::align_val_t{128})));
  fill(guard(), kSharedGuard, Mark::kGuard);
  close(guard(), kSharedGuard);
}

Runner::~Runner() {
  open(guard(), kSharedGuard);
}

std::string Runner::block() const {
  return "kernel " + grid_.kernel + ", block " + text(blockIdx) + ": ";
}

std::string Runner::thread() const {
  return "kernel " + grid_.kernel + ", block " + text(blockIdx) + ", thread " +
         text(positions_[current_]) + ": ";
}

void Runner::run(const std::function<void()>& body) {
  running() = this;
  gridDim = grid_.blocks;
  blockDim = grid_.threads;
  const std::size_t blocks = volume(grid_.blocks);
  Order order(blocks, random_);
  for (std::size_t i = 0; i < blocks && failure_.empty(); ++i) {
    blockIdx = position(order.next(), grid_.blocks);
    fill(shared_.get(), grid_.shared_bytes, Mark::kFresh);
    if (grid_.synchronising) {
      run_block_side_by_side(body);
    } else {
      run_block_in_turn(body);
    }
    if (failure_.empty()) check_guard();
  }
  running() = nullptr;
  if (!failure_.empty()) throw Fault(failure_);
}

void Runner::run_block_in_turn(const std::function<void()>& body) {
  Order order(threads_, random_);
  for (std::size_t i = 0; i < threads_ && failure_.empty(); ++i) run_thread(order.next(), body);
}

void Runner::run_thread(std::size_t index, const std::function<void()>& body) {
  current_ = index;
  threadIdx = positions_[index];
  try {
    body();
  } catch (const Cancelled&) {
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Runner::run_block_side_by_side(const std::function<void()>& body) {
  thread_local Fibers fibers;
  fibers_ = &fibers;
  states_.assign(threads_, State::kReady);
  parity_.assign(threads_, 0);
  copies_.assign(threads_, {});
  copies_at_once_ = random_.below(2) == 0;
  warps_.resize((threads_ + kLanes - 1) / kLanes);
  for (Warp& warp : warps_) {
    for (Warp::Round& round : warp.rounds) round.arrived = 0;
  }
  const std::function<void(std::size_t)> entry = [&](std::size_t index) {
    run_thread(index, body);
    states_[index] = State::kDone;
  };
  for (std::size_t i = 0; i < threads_; ++i) fibers.start(i, entry);
  do {
    run_ready(fibers);
    if (failure_.empty()) release_barrier();
    if (!failure_.empty()) {  // ends those that wait
      cancelled_ = true;
      for (std::size_t i = 0; i < threads_; ++i) {
        current_ = i;
        if (states_[i] != State::kDone) fibers.resume(i);
      }
    }
  } while (std::count(states_.begin(), states_.end(), State::kDone) <
           static_cast<std::ptrdiff_t>(threads_));
  fibers_ = nullptr;
}

void Runner::run_ready(Fibers& fibers) {
  if (random_.below(2) == 0) return run_ready(fibers, 0, threads_);
  Order order(warps_.size(), random_);
  for (std::size_t i = 0; i < warps_.size() && failure_.empty(); ++i) {
    const std::size_t first = order.next() * kLanes;
    run_ready(fibers, first, std::min(first + kLanes, threads_));
  }
}

void Runner::run_ready(Fibers& fibers, std::size_t first, std::size_t end) {
  for (bool ran = true; ran && failure_.empty();) {
    ran = false;
    Order order(end - first, random_);
    for (std::size_t i = first; i < end && failure_.empty(); ++i) {
      const std::size_t index = first + order.next();
      if (states_[index] != State::kReady) continue;
      current_ = index;
      threadIdx = positions_[index];
      fibers.resume(index);
      ran = true;
    }
  }
}

// All threads have ended or wait.
void Runner::release_barrier() {
  std::size_t at_barrier = 0, done = 0, in_exchange = 0, first_waiting = threads_;
  for (std::size_t i = 0; i < threads_; ++i) {
    at_barrier += states_[i] == State::kAtBarrier;
    done += states_[i] == State::kDone;
    if (states_[i] == State::kInExchange && in_exchange++ == 0) first_waiting = i;
  }
  if (in_exchange > 0) {
    const std::size_t warp = first_waiting / kLanes;
    const std::size_t lanes = std::min(kLanes, threads_ - warp * kLanes);
    const Warp::Round& round = warps_[warp].rounds[parity_[first_waiting]];
    return fail(block() + std::to_string(round.arrived) + " lanes of warp " + std::to_string(warp) +
                " wait in " + round.operation + "; the other " +
                std::to_string(kLanes - round.arrived) + " never come to it" +
                (lanes < kLanes ? ", since the block has " + std::to_string(threads_) +
                                      " threads, no multiple of 32"
                                : ""));
  }
  if (at_barrier > 0 && done > 0) {
    return fail(block() + std::to_string(at_barrier) + " threads wait at a barrier; the other " +
                std::to_string(done) + " have left the kernel without it");
  }
  std::replace(states_.begin(), states_.end(), State::kAtBarrier, State::kReady);
}

void Runner::check_guard() {
  open(guard(), kSharedGuard);
  if (!is_filled(guard(), kSharedGuard, Mark::kGuard)) {
    fail(block() + "a thread wrote beyond the " + std::to_string(grid_.shared_bytes) +
         " bytes of shared memory with which it was launched");
  }
  close(guard(), kSharedGuard);
}

void run_grid(const Grid& grid, const std::function<void()>& body) {
  Runner(grid).run(body);
}

}  // namespace penstock::cuda_emulation
