#include <memory>

#include "tensor/cuda/check.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/queue.h"

namespace penstock::tensor::cuda {

namespace {

// An event: what a stream has reached says what it stands for.
class EventFence final : public Fence {
 public:
  explicit EventFence(const Queue& queue) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventRecord(event_, queue.stream()), "cudaEventRecord");
  }
  ~EventFence() override { cudaEventDestroy(event_); }

  bool reached() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  void wait() override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(const CudaOptions& options)
      : Allocator({DeviceType::kCuda, options.device}), queue_(options) {}

  void* allocate(std::size_t bytes) override {
    void* block = nullptr;
    check(cudaMallocAsync(&block, bytes, queue_.stream()), "cudaMallocAsync");
    return block;
  }
  void release(void* data, std::size_t) noexcept override { cudaFreeAsync(data, queue_.stream()); }

  void zero(void* to, std::size_t bytes) override {
    if (bytes > 0) check(cudaMemsetAsync(to, 0, bytes, queue_.stream()), "cudaMemsetAsync");
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    move(to, from, bytes, cudaMemcpyDefault);
  }
  void upload(void* to, std::span<const std::byte> from) override {
    // From memory that is not pinned the driver copies before it returns.
    move(to, from.data(), from.size(), cudaMemcpyHostToDevice);
  }
  void download(std::span<std::byte> to, const void* from) override {
    start_download(to, from);
    check(cudaStreamSynchronize(queue_.stream()), "cudaStreamSynchronize");
  }
  void start_download(std::span<std::byte> to, const void* from) override {
    move(to.data(), from, to.size(), cudaMemcpyDeviceToHost);
  }

  std::shared_ptr<Fence> fence() override { return std::make_shared<EventFence>(queue_); }
  void wait_for(Fence& fence) override {
    check(cudaStreamWaitEvent(queue_.stream(), static_cast<EventFence&>(fence).event(), 0),
          "cudaStreamWaitEvent");
  }

  Queue& queue() { return queue_; }

 private:
  void move(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, kind, queue_.stream()), "cudaMemcpyAsync");
  }

  Queue queue_;
};

}  // namespace

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::shared_ptr<Allocator> make_cuda_allocator(const CudaOptions& options) {
  return std::make_shared<CudaAllocator>(options);
}

Queue& queue_of(const Context& context) {
  Queue& queue = static_cast<CudaAllocator&>(*context.allocator).queue();
  check(cudaSetDevice(queue.device()), "cudaSetDevice");
  return queue;
}

}  // namespace penstock::tensor::cuda
