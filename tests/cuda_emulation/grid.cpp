// What the threads of a kernel call.
#include "tests/cuda_emulation/grid.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda_emulation/fault.h"
#include "tests/cuda_emulation/runner.h"

namespace penstock::cuda_emulation {

namespace {

Runner& runner(const char* operation) {
  Runner* running = Runner::running();
  if (running == nullptr) throw Fault(std::string(operation) + " was called outside of a kernel");
  return *running;
}

void run_copy(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

}  // namespace

void Runner::suspend(State state) {
  const std::size_t index = current_;
  states_[index] = state;
  fibers_->suspend();
  if (cancelled_) throw Cancelled{};
}

void Runner::barrier() {
  if (fibers_ == nullptr) {
    throw Fault(thread() + "came to a barrier, but the kernel was started as an independent one");
  }
  suspend(State::kAtBarrier);
}

const std::byte* Runner::exchange(const char* operation, const void* value, std::size_t bytes) {
  if (fibers_ == nullptr) {
    throw Fault(thread() + "came to " + operation +
                ", but the kernel was started as an independent one");
  }
  const std::size_t index = current_, warp = index / kLanes, lane = index % kLanes;
  Warp::Round& round = warps_[warp].rounds[parity_[index]];
  if (round.arrived == 0) {
    round.operation = operation;
  } else if (std::string_view(round.operation) != operation) {
    throw Fault(thread() + "came to " + operation + " while other lanes of its warp wait in " +
                round.operation);
  }
  std::memcpy(round.values.data() + lane * kLaneBytes, value, bytes);
  if (++round.arrived < kLanes) {
    suspend(State::kInExchange);
  } else {
    for (std::size_t i = warp * kLanes; i < (warp + 1) * kLanes; ++i) {
      if (i != index) states_[i] = State::kReady;
    }
    round.arrived = 0;
  }
  parity_[index] ^= 1;
  return round.values.data();
}

std::byte* Runner::shared(std::size_t offset, std::size_t alignment) {
  if (fibers_ == nullptr) {
    throw Fault(thread() + "uses shared memory, but the kernel was started as an independent one");
  }
  if (offset > grid_.shared_bytes) {
    throw Fault(thread() + "asks for shared memory at offset " + std::to_string(offset) +
                " of the " + std::to_string(grid_.shared_bytes) +
                " bytes with which it was launched");
  }
  if (offset % alignment != 0) {
    throw Fault(thread() + "asks for shared memory at offset " + std::to_string(offset) +
                ", which its type does not suit (alignment " + std::to_string(alignment) + ")");
  }
  return shared_.get() + offset;
}

void Runner::fail_alignment(const char* operation, const void* address,
                            std::size_t alignment) const {
  throw Fault(thread() + operation + " was given an address that is " +
              std::to_string(reinterpret_cast<std::uintptr_t>(address) % alignment) +
              " bytes past a multiple of " + std::to_string(alignment));
}

void Runner::check_shared(const char* operation, const void* address, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(shared_.get());
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at < begin || at + bytes > begin + grid_.shared_bytes) {
    throw Fault(thread() + operation + " was given an address outside of the block's " +
                std::to_string(grid_.shared_bytes) + " bytes of shared memory");
  }
}

std::byte* shared_bytes(std::size_t offset, std::size_t alignment) {
  return runner("shared_memory").shared(offset, alignment);
}

const std::byte* exchange(const char* operation, const void* value, std::size_t bytes) {
  return runner(operation).exchange(operation, value, bytes);
}

void fail_alignment(const char* operation, const void* address, std::size_t alignment) {
  runner(operation).fail_alignment(operation, address, alignment);
}

void check_shared(const char* operation, const void* address, std::size_t bytes) {
  runner(operation).check_shared(operation, address, bytes);
}

void copy_later(void* to, const void* from, std::size_t bytes) {
  Runner& running = runner("copy_async16");
  if (running.copies_at_once()) return run_copy({to, from, bytes});
  auto& groups = running.copies();
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back({to, from, bytes});
}

void end_copy_group() {
  auto& groups = runner("commit_copies").copies();
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}

void finish_copy_groups(int left) {
  auto& groups = runner("wait_copies").copies();
  const std::size_t kept = static_cast<std::size_t>(left) + 1;  // with the one being made
  if (groups.size() <= kept) return;
  const auto end = groups.end() - static_cast<std::ptrdiff_t>(kept);
  for (auto group = groups.begin(); group != end; ++group) {
    for (const Copy& copy : *group) run_copy(copy);
  }
  groups.erase(groups.begin(), end);
}

unsigned lane_index() {
  return static_cast<unsigned>(runner("lane_index").lane());
}

}  // namespace penstock::cuda_emulation

void __syncthreads() {
  penstock::cuda_emulation::runner("__syncthreads").barrier();
}
