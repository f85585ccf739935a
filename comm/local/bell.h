// Bell: how one rank's thread wakes another's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace penstock::comm::local {

using Clock = std::chrono::steady_clock;

// One per rank. The owner reads count(), looks for work, finds none, and sleeps until the count
// has changed since; so no ring between the look and the sleep is lost.
class Bell {
 public:
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }

  // Any thread. Costs one atomic addition when the owner is awake.
  void ring() {
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst)) {
      const std::lock_guard lock(mutex_);
      wake_.notify_one();
    }
  }

  // The owner only.
  void sleep_until(Clock::time_point deadline, std::uint64_t seen) {
    std::unique_lock lock(mutex_);
    asleep_.store(true, std::memory_order_seq_cst);
    wake_.wait_until(lock, deadline,
                     [&] { return count_.load(std::memory_order_seq_cst) != seen; });
    asleep_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace penstock::comm::local
