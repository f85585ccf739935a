// Memory: the blocks of the emulated devices and of pinned host memory, with the order in which
// streams may touch them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_emulation/arena.h"
#include "tests/cuda_emulation/poison.h"

namespace penstock::cuda_emulation {

// How far each stream, by its id, had got at a point of the program: counts of operations.
using Clock = std::vector<std::uint64_t>;
void join(Clock& into, const Clock& from);
std::uint64_t at(const Clock& clock, int stream);

// A stream's operation, as the order of uses sees it.
struct Moment {
  int stream = 0;
  std::uint64_t count = 0;
  std::string what;
};

struct Block {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool of_pool = false;
  int device = 0;  // kPinned for host memory
  Moment allocated;
  std::map<int, Moment> last_use;  // by stream
  std::optional<Moment> released;  // its release is queued
};

inline constexpr int kPinned = -1;

// A device's pool: what cudaMallocAsync takes from.
struct Pool {
  int device = 0;
  std::uint64_t threshold = 0;
  std::uint64_t used = 0, used_high = 0;
  std::uint64_t reserved = 0, reserved_high = 0;
  std::uint64_t outside = 0;  // of the device's memory, what cudaMalloc took
  std::set<int> readers;      // other devices whose kernels may touch its blocks
};

// Not safe for threads: the machine's lock guards it. The functions that return text return what is
// wrong, or nothing.
class Memory {
 public:
  // `guarded`: of devices' blocks, see Arena; `bytes`: that all of them together may have.
  Memory(bool guarded, std::size_t bytes) : arena_(guarded, bytes) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Block& allocate(int device, std::size_t bytes, const Moment& when);
  // The block that holds the address, released or not; null for other memory. The first address
  // after a block of no bytes counts for it.
  Block* find(const void* pointer);

  // An operation, ordered by its clock, touches the block from now on.
  std::string use(Block& block, const Moment& when, const Clock& clock);
  // The block is released there: what others do with it must come before.
  std::string release(Block& block, const Moment& when, const Clock& clock);
  // The release happens: nothing may touch the block any more.
  std::string retire(Block& block);
  // Whether bytes around the block were written.
  std::string check_guards(const Block& block) const;
  std::string check_all_guards() const;

  // While it lives, blocks may be touched.
  Arena::Access access() const { return Arena::Access(arena_); }

  std::string describe(const Block& block) const;
  // Blocks that nobody has released.
  std::vector<const Block*> live() const;

 private:
  void discard(Block& block);

  mutable Arena arena_;  // of the devices' blocks; looking at them opens it
  Arena pinned_{false, 0};
  std::map<std::uintptr_t, Block> blocks_;  // by address
  std::deque<std::uintptr_t> retired_;      // addresses are kept for a while, to catch late uses
  std::size_t retired_bytes_ = 0;
};

}  // namespace penstock::cuda_emulation
