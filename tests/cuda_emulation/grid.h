// Running the threads of a kernel, and what they do with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

#include "tests/cuda_emulation/device_code.h"

namespace penstock::cuda_emulation {

struct Grid {
  std::string kernel;          // for messages
  bool synchronising = false;  // threads of a block run side by side, else one after the other
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
  std::uint64_t seed = 0;  // chooses the order of blocks and threads
};

// Calls the body once as each thread of the grid. Throws Fault.
void run_grid(const Grid& grid, const std::function<void()>& body);

// For the kernel's thread that calls it:

// The address of the block's shared memory from an offset on. Throws Fault unless the offset is in
// it and aligned, and the kernel a synchronising one.
std::byte* shared_bytes(std::size_t offset, std::size_t alignment);

// Throws Fault unless the address suits the alignment, and unless the bytes are in the block's
// shared memory.
inline void check_aligned(const char* operation, const void* address, std::size_t alignment);
void check_shared(const char* operation, const void* address, std::size_t bytes);

// Copies of the calling thread's that are done no earlier than when it waits for their group: zeros
// where `from` is null.
void copy_later(void* to, const void* from, std::size_t bytes);
void end_copy_group();
// All but the last `left` groups.
void finish_copy_groups(int left);

// Waits until all 32 lanes of the warp call it with the same operation, then returns what lane 0
// gave, followed by the other lanes' at a stride of kLaneBytes. Valid until the lane's next call.
inline constexpr std::size_t kLaneBytes = 128;
const std::byte* exchange(const char* operation, const void* value, std::size_t bytes);

// The index of the calling thread in its warp.
unsigned lane_index();

[[noreturn]] void fail_alignment(const char* operation, const void* address, std::size_t alignment);
inline void check_aligned(const char* operation, const void* address, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    fail_alignment(operation, address, alignment);
  }
}

// What each lane of the warp gave.
template <class T>
class Lanes {
 public:
  Lanes(const char* operation, const T& mine) {
    static_assert(sizeof(T) <= kLaneBytes && std::is_trivially_copyable_v<T>);
    values_ = exchange(operation, &mine, sizeof(T));
  }
  const T& operator[](unsigned lane) const {
    return *reinterpret_cast<const T*>(values_ + lane * kLaneBytes);
  }

 private:
  const std::byte* values_;
};

}  // namespace penstock::cuda_emulation
