// Where storage comes from, and the counters that measured memory is read from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tensor/device.h"
#include "tensor/fence.h"

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

// Gives out blocks of memory on one device, and moves bytes in and out of them. Blocks are aligned
// to kAlignment bytes and may be returned from any thread. One allocator serves one rank; storages
// keep it alive, which is why it is held by shared_ptr.
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

  // Moving bytes, which is done here for host memory: at once. A device does it in the order of
  // the work that its operations have queued. Blocks, "to" and "from" alike, are this allocator's
  // where they are pointers and the host's where they are spans. By the time that zero, upload or
  // copy returns, a span may be written again.
  virtual void zero(void* to, std::size_t bytes);
  virtual void upload(void* to, std::span<const std::byte> from);
  virtual void copy(void* to, const void* from, std::size_t bytes);
  // Waits until the bytes are there: the one call that waits for a device.
  virtual void download(std::span<std::byte> to, const void* from);
  // Does not wait: the bytes are there when a fence made afterwards is reached, and `to` must stay.
  virtual void start_download(std::span<std::byte> to, const void* from);

  // What is queued now; null where all work is done as soon as its call returns.
  virtual std::shared_ptr<Fence> fence() { return nullptr; }
  // Work queued from now on runs after what the fence, of any allocator, stands for. Never waits.
  virtual void wait_for(Fence& fence);

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
