// Pinned memory of the host.
#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"
#include "tensor/cuda/cuda.h"
#include "tensor/out_of_memory.h"
#include "tensor/poison.h"

namespace penstock::tensor::cuda {

namespace {

// Pinning takes the driver far longer than copying, and makes it wait for all devices, so blocks
// are kept by size until the allocator goes.
class PinnedAllocator final : public Allocator {
 public:
  PinnedAllocator() : Allocator(kCpuDevice) {}
  ~PinnedAllocator() override { trim(); }

  void* allocate(std::size_t bytes) override {
    const std::size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    std::vector<void*>& blocks = free_[size];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      return block;  // poisoned when it was released
    }
    void* block = pin(size);
    if (block == nullptr) {
      trim();  // what other sizes left behind may be enough
      block = pin(size);
    }
    if (block == nullptr) throw OutOfMemory(bytes, " in pinned memory of the host");
    poison(block, size);
    return block;
  }

  void release(void* data, std::size_t bytes) noexcept override {
    poison(data, bytes);
    try {
      const std::lock_guard lock(mutex_);
      free_[rounded(bytes)].push_back(data);
    } catch (...) {  // no memory to remember it by
      cudaFreeHost(data);
    }
  }

 private:
  static std::size_t rounded(std::size_t bytes) {
    return std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  }

  // Null when there is no room.
  static void* pin(std::size_t bytes) {
    void* block = nullptr;
    const cudaError_t status = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, "cudaHostAlloc");
    return block;
  }

  // With the lock held or nobody else looking.
  void trim() noexcept {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) cudaFreeHost(block);
      blocks.clear();
    }
  }

  std::mutex mutex_;  // storage may be released on another rank's thread
  std::map<std::size_t, std::vector<void*>> free_;
};

}  // namespace

std::shared_ptr<Allocator> make_pinned_allocator() {
  return std::make_shared<PinnedAllocator>();
}

}  // namespace penstock::tensor::cuda
