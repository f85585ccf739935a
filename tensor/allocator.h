// Where storage comes from, and the counters that measured memory is read from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/device.h"

namespace penstock::tensor {

// Bytes in live storages that count for one rank. A storage handed to another rank counts for the
// sender until the receiver takes it (Storage::charge). Counters may be read from any thread.
class MemoryCounters {
 public:
  void add(std::size_t bytes) noexcept;
  void remove(std::size_t bytes) noexcept;

  std::int64_t live_bytes() const noexcept { return live_.load(std::memory_order_relaxed); }
  std::int64_t peak_bytes() const noexcept { return peak_.load(std::memory_order_relaxed); }
  // Sets the peak to what is live now.
  void reset_peak() noexcept;
  // Sets it to at least `bytes`: who has reset the peak for a while puts the earlier one back.
  void raise_peak(std::int64_t bytes) noexcept;

 private:
  std::atomic<std::int64_t> live_{0};
  std::atomic<std::int64_t> peak_{0};
};

// Gives out blocks of memory on one device. Blocks are aligned to kAlignment bytes and may be
// returned from any thread. One allocator serves one rank; storages keep it alive, which is why
// it is held by shared_ptr.
class Allocator {
 public:
  static constexpr std::size_t kAlignment = 256;

  explicit Allocator(Device device) : device_(device) {}
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Throws std::bad_alloc when there is no memory. On the meta device the result is null.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data, std::size_t bytes) noexcept = 0;

  Device device() const { return device_; }
  const std::shared_ptr<MemoryCounters>& counters() const { return counters_; }

 private:
  Device device_;
  std::shared_ptr<MemoryCounters> counters_ = std::make_shared<MemoryCounters>();
};

// Host memory. Released blocks are kept in free lists by size, since mapping fresh pages for every
// activation costs more than filling them; the destructor gives them back.
std::shared_ptr<Allocator> make_cpu_allocator();

// Counts bytes and allocates nothing.
std::shared_ptr<Allocator> make_meta_allocator();

}  // namespace penstock::tensor
