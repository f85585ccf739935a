// Runner: runs the blocks of a grid, and holds what the threads of the running block share.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tests/cuda_emulation/fiber.h"
#include "tests/cuda_emulation/grid.h"
#include "tests/cuda_emulation/random.h"

namespace penstock::cuda_emulation {

inline constexpr std::size_t kLanes = 32;

// Unwinds the threads of a block in which another one failed.
struct Cancelled {};

enum class State : char { kReady, kAtBarrier, kInExchange, kDone };

// The values that the lanes of a warp give each other. A lane may be one exchange ahead of those
// that have not read yet, never two.
struct Warp {
  struct Round {
    const char* operation = nullptr;
    std::size_t arrived = 0;
    alignas(16) std::array<std::byte, kLanes * kLaneBytes> values;
  };
  std::array<Round, 2> rounds;
};

// A copy that a thread has begun.
struct Copy {
  void* to;
  const void* from;  // null: zeros
  std::size_t bytes;
};

// What is public is called by the running thread of a kernel, but for run().
class Runner {
 public:
  explicit Runner(const Grid& grid);
  ~Runner();

  // The one that runs on the calling host thread, or null.
  static Runner*& running();

  void run(const std::function<void()>& body);

  void barrier();
  const std::byte* exchange(const char* operation, const void* value, std::size_t bytes);
  std::byte* shared(std::size_t offset, std::size_t alignment);
  std::size_t lane() const { return current_ % kLanes; }
  [[noreturn]] void fail_alignment(const char* operation, const void* address,
                                   std::size_t alignment) const;
  void check_shared(const char* operation, const void* address, std::size_t bytes) const;
  std::vector<std::vector<Copy>>& copies() { return copies_[current_]; }
  // Whether the running block's copies happen when they are begun; else when they are waited for.
  bool copies_at_once() const { return copies_at_once_; }

 private:
  struct FreeShared {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{128}); }
  };

  std::byte* guard() const { return shared_.get() + grid_.shared_bytes; }
  // For messages.
  std::string block() const;
  std::string thread() const;
  void run_block_in_turn(const std::function<void()>& body);
  void run_block_side_by_side(const std::function<void()>& body);
  void run_thread(std::size_t index, const std::function<void()>& body);
  // Runs the threads until each has ended or waits at a barrier: all beside each other, or one warp
  // after the other.
  void run_ready(Fibers& fibers);
  void run_ready(Fibers& fibers, std::size_t first, std::size_t end);
  void release_barrier();
  void suspend(State state);
  void fail(const std::string& message) {
    if (failure_.empty()) failure_ = message;
  }
  void check_guard();

  const Grid& grid_;
  Random random_;
  std::size_t threads_;
  std::vector<uint3> positions_;
  std::unique_ptr<std::byte, FreeShared> shared_;

  Fibers* fibers_ = nullptr;  // null while threads run one after the other
  std::size_t current_ = 0;   // the thread that runs
  std::vector<State> states_;
  std::vector<unsigned char> parity_;  // of a thread's next exchange
  std::vector<Warp> warps_;
  // By thread: its groups of copies under way, the last of which is being made.
  std::vector<std::vector<std::vector<Copy>>> copies_;
  bool copies_at_once_ = false;
  std::string failure_;
  bool cancelled_ = false;
};

}  // namespace penstock::cuda_emulation
