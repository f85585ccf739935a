// Storage: one reference-counted block of memory that tensors look into.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/allocator.h"

namespace penstock::tensor {

// Held by shared_ptr because a storage has no single owner: tensors on two ranks' threads may look
// into it, and the last to let go frees it, on whichever thread that is.
class Storage {
 public:
  // Allocates; throws std::bad_alloc.
  Storage(std::shared_ptr<Allocator> allocator, std::size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return allocator_->device(); }
  Allocator& allocator() const { return *allocator_; }

  // A sealed storage is immutable on every rank from now on: it was given to send.
  void seal() noexcept { sealed_.store(true, std::memory_order_relaxed); }
  bool sealed() const noexcept { return sealed_.load(std::memory_order_relaxed); }

  // Counts these bytes for another rank: called by the receiver when it takes a handed-over
  // tensor. Only one thread may call it at a time.
  void charge(const std::shared_ptr<MemoryCounters>& counters) noexcept;

  // Says that work queued by another allocator's contexts reads this storage: the block is used
  // again only after it. Only one thread may call it at a time.
  void add_user(const std::shared_ptr<Allocator>& user);

 private:
  MemoryCounters& account() const noexcept;

  std::shared_ptr<Allocator> allocator_;
  std::vector<std::shared_ptr<Allocator>> users_;
  std::shared_ptr<MemoryCounters> charged_;  // null: the allocator's
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::atomic<bool> sealed_{false};
};

}  // namespace penstock::tensor
