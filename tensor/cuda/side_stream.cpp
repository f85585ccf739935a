#include "tensor/cuda/side_stream.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"
#include "tensor/cuda/event_fence.h"

namespace penstock::tensor::cuda {

namespace {

cudaStream_t handle(const SideStream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

class ArrivalMemory final : public Allocator {
 public:
  ArrivalMemory(std::shared_ptr<SideStream> stream, std::shared_ptr<Allocator> memory)
      : Allocator(memory->device()), stream_(std::move(stream)), memory_(std::move(memory)) {}

  void* allocate(std::size_t bytes) override {
    void* block = nullptr;
    const cudaError_t status =
        cudaMallocAsync(&block, std::max<std::size_t>(bytes, 1), handle(*stream_));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();                // or the next launch would report it
      block = memory_->allocate(bytes);  // knows how to make room
      stream_->wait_for(*memory_->fence());
      return block;
    }
    check(status, "cudaMallocAsync");
    return block;
  }
  void release(void* data, std::size_t bytes) noexcept override { memory_->release(data, bytes); }

  void zero(void* to, std::size_t bytes) override { memory_->zero(to, bytes); }
  void upload(void* to, std::span<const std::byte> from) override { memory_->upload(to, from); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    memory_->copy(to, from, bytes);
  }
  void download(std::span<std::byte> to, const void* from) override { memory_->download(to, from); }
  void start_download(std::span<std::byte> to, const void* from) override {
    memory_->start_download(to, from);
  }
  std::shared_ptr<Fence> fence() override { return memory_->fence(); }
  void wait_for(Fence& fence) override { memory_->wait_for(fence); }

 private:
  std::shared_ptr<SideStream> stream_;  // shared with who queues work on it
  std::shared_ptr<Allocator> memory_;
};

}  // namespace

SideStream::SideStream(int device) : device_(device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  int lowest = 0;
  int highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
        "cudaStreamCreateWithPriority");
  stream_ = stream;
}

SideStream::~SideStream() {
  cudaStreamDestroy(handle(*this));
}

std::shared_ptr<Fence> SideStream::fence() const {
  return std::make_shared<EventFence>(device_, handle(*this));
}

bool SideStream::idle() const noexcept {
  return cudaStreamQuery(handle(*this)) != cudaErrorNotReady;
}

void SideStream::wait_for(Fence& fence) {
  hold(handle(*this), fence);
}

std::shared_ptr<Allocator> arrival_memory(std::shared_ptr<SideStream> stream,
                                          std::shared_ptr<Allocator> memory) {
  return std::make_shared<ArrivalMemory>(std::move(stream), std::move(memory));
}

}  // namespace penstock::tensor::cuda
