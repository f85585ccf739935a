#include "tensor/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace penstock::tensor {

void MemoryCounters::add(std::size_t bytes) noexcept {
  const std::int64_t now =
      live_.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed) +
      static_cast<std::int64_t>(bytes);
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void MemoryCounters::remove(std::size_t bytes) noexcept {
  live_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

void MemoryCounters::reset_peak() noexcept {
  peak_.store(live_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

namespace {

// Sizes are rounded up to eight steps per power of two, so that a block freed by one shape can
// serve a slightly different one and waste stays under one eighth.
std::size_t size_class(std::size_t bytes) {
  if (bytes <= Allocator::kAlignment) return Allocator::kAlignment;
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, Allocator::kAlignment);
  return (bytes + step - 1) / step * step;
}

class CpuAllocator final : public Allocator {
 public:
  CpuAllocator() : Allocator(kCpuDevice) {}

  ~CpuAllocator() override {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) std::free(block);
    }
  }

  void* allocate(std::size_t bytes) override {
    const std::size_t size = size_class(bytes);
    {
      const std::lock_guard lock(mutex_);
      auto found = free_.find(size);
      if (found != free_.end() && !found->second.empty()) {
        void* block = found->second.back();
        found->second.pop_back();
        return block;
      }
    }
    void* block = std::aligned_alloc(kAlignment, size);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }

  void release(void* data, std::size_t bytes) noexcept override {
#ifndef NDEBUG
    std::memset(data, 0xd5, bytes);  // poison: a use after release shows as garbage, not as luck
#endif
    try {
      const std::lock_guard lock(mutex_);
      free_[size_class(bytes)].push_back(data);
    } catch (...) {
      std::free(data);
    }
  }

 private:
  std::mutex mutex_;  // storage may be released on another rank's thread
  std::unordered_map<std::size_t, std::vector<void*>> free_;
};

class MetaAllocator final : public Allocator {
 public:
  MetaAllocator() : Allocator(kMetaDevice) {}
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
};

}  // namespace

std::shared_ptr<Allocator> make_cpu_allocator() {
  return std::make_shared<CpuAllocator>();
}
std::shared_ptr<Allocator> make_meta_allocator() {
  return std::make_shared<MetaAllocator>();
}

}  // namespace penstock::tensor
