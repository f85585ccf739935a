#include "tensor/allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "tensor/out_of_memory.h"
#include "tensor/poison.h"

namespace penstock::tensor {

void MemoryCounters::add(std::size_t bytes) noexcept {
  const std::int64_t now =
      live_.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed) +
      static_cast<std::int64_t>(bytes);
  raise_peak(now);
}

void MemoryCounters::remove(std::size_t bytes) noexcept {
  live_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

void MemoryCounters::reset_peak() noexcept {
  peak_.store(live_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void MemoryCounters::raise_peak(std::int64_t bytes) noexcept {
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (bytes > peak && !peak_.compare_exchange_weak(peak, bytes, std::memory_order_relaxed)) {
  }
}

void Allocator::zero(void* to, std::size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

void Allocator::upload(void* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void Allocator::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Allocator::download(std::span<std::byte> to, const void* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void Allocator::start_download(std::span<std::byte> to, const void* from) {
  download(to, from);
}

void Allocator::wait_for(Fence& fence) {
  fence.wait();
}

namespace {

// Sizes are rounded up to eight steps per power of two, so that a block freed by one shape can
// serve a slightly different one and waste stays under one eighth.
struct SizeClass {
  std::size_t bytes;
  std::size_t index;  // among all classes, from the smallest
};

constexpr std::size_t kSteps = 8;
constexpr std::size_t kSmallest = Allocator::kAlignment * kSteps;  // below: multiples of kAlignment
constexpr std::size_t kNumClasses = kSteps * (65 - std::bit_width(kSmallest));

SizeClass size_class(std::size_t bytes) {
  if (bytes <= kSmallest) {
    const std::size_t units =
        std::max<std::size_t>(1, (bytes + Allocator::kAlignment - 1) / Allocator::kAlignment);
    return {units * Allocator::kAlignment, units - 1};
  }
  const std::size_t power = std::bit_floor(bytes - 1);  // power < bytes <= 2 · power
  const std::size_t step = power / kSteps;
  const std::size_t steps = (bytes - power + step - 1) / step;  // 1 … kSteps
  const auto octave = static_cast<std::size_t>(std::bit_width(power) - std::bit_width(kSmallest));
  return {power + steps * step, kSteps + octave * kSteps + steps - 1};
}

// Bytes of idle blocks that are always kept.
constexpr std::int64_t kKeptIdle = std::int64_t{64} << 20;

class CpuAllocator final : public Allocator {
 public:
  CpuAllocator() : Allocator(kCpuDevice) {}
  ~CpuAllocator() override { trim(); }

  void* allocate(std::size_t bytes) override {
    const SizeClass size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    std::vector<void*>& blocks = free_[size.index];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      idle_ -= static_cast<std::int64_t>(size.bytes);
      return block;  // poisoned when it was released
    }
    // Sizes that change would leave a peak of each behind: keep no more idle than is in use.
    if (idle_ > std::max<std::int64_t>(kKeptIdle, counters()->live_bytes())) trim();
    void* block = std::aligned_alloc(kAlignment, size.bytes);
    if (block == nullptr) {
      trim();  // what other sizes left behind may be enough
      block = std::aligned_alloc(kAlignment, size.bytes);
    }
    if (block == nullptr) throw OutOfMemory(bytes);
    poison(block, size.bytes);
    return block;
  }

  void release(void* data, std::size_t bytes) noexcept override {
    poison(data, bytes);
    try {
      const SizeClass size = size_class(bytes);
      const std::lock_guard lock(mutex_);
      free_[size.index].push_back(data);
      idle_ += static_cast<std::int64_t>(size.bytes);
    } catch (...) {  // no memory to remember it by
      std::free(data);
    }
  }

 private:
  // Gives all free blocks back to the system; with the lock held or nobody else looking.
  void trim() noexcept {
    for (std::vector<void*>& blocks : free_) {
      for (void* block : blocks) std::free(block);
      blocks.clear();
    }
    idle_ = 0;
  }

  std::mutex mutex_;  // storage may be released on another rank's thread
  std::array<std::vector<void*>, kNumClasses> free_;
  std::int64_t idle_ = 0;  // bytes in free_
};

class MetaAllocator final : public Allocator {
 public:
  MetaAllocator() : Allocator(kMetaDevice) {}
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
  void zero(void*, std::size_t) override {}
  void upload(void*, std::span<const std::byte>) override {}
  void copy(void*, const void*, std::size_t) override {}
  void wait_for(Fence&) override {}
};

}  // namespace

std::shared_ptr<Allocator> make_cpu_allocator() {
  return std::make_shared<CpuAllocator>();
}
std::shared_ptr<Allocator> make_meta_allocator() {
  return std::make_shared<MetaAllocator>();
}

}  // namespace penstock::tensor
