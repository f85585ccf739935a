#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "tensor/cuda/check.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/event_fence.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/room.h"
#include "tensor/cuda/staging.h"
#include "tensor/error.h"
#include "tensor/out_of_memory.h"
#include "tensor/poison.h"

namespace penstock::tensor::cuda {

namespace {

// A point in a rank's queue. Waiting for it tells of faults in data.
class QueueFence final : public EventFence {
 public:
  explicit QueueFence(std::shared_ptr<Queue> queue)
      : EventFence(queue->device(), queue->stream()), queue_(std::move(queue)) {}

  void wait() override {
    EventFence::wait();
    queue_->throw_fault();
  }

 private:
  std::shared_ptr<Queue> queue_;  // shared: a fence may outlive the allocator that made it
};

// Bytes that go on from pinned memory to where they are wanted, on the driver's thread.
struct Delivery {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};
void deliver(void* argument) {
  const std::unique_ptr<Delivery> delivery(static_cast<Delivery*>(argument));
  std::memcpy(delivery->to, delivery->from, delivery->bytes);
}

bool is_pinned(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeHost;
}

// Blocks come from the driver's pool, which takes them back and gives them out again in the order
// of the stream: one that is released while queued work still uses it is safe.
class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(const CudaOptions& options)
      : Allocator({DeviceType::kCuda, options.device}), queue_(std::make_shared<Queue>(options)) {
    check(cudaDeviceGetDefaultMemPool(&pool_, options.device), "cudaDeviceGetDefaultMemPool");
    // What was released stays for the next blocks, instead of going back at each wait.
    std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep),
          "cudaMemPoolSetAttribute");
    // Nor does the driver, where memory is short, have a stream wait for another's queued work to
    // get a block of that one: what arrives must not wait for what computes (side_stream.h).
    int never = 0;
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &never),
          "cudaMemPoolSetAttribute");
  }
  ~CudaAllocator() override { queue_->finish(); }

  void* allocate(std::size_t bytes) override {
    queue_->make_current();
    void* block = take(bytes);
    if (block == nullptr) {  // what queued work still holds, and what the pool keeps, may do
      if (!queue_->capture().capturing()) queue_->wait();
      check(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
      block = take(bytes);
    }
    if (block == nullptr) throw OutOfMemory(bytes, room_left());
    if constexpr (kPoisons) fill(block, kPoison, bytes);
    return block;
  }

  // Errors are those of a device that has failed, which the rank's next call tells.
  void release(void* data, std::size_t bytes) noexcept override {
    Capture& capture = queue_->capture();
    const std::lock_guard lock(capture.mutex());
    if (capture.memory().give_back(data)) return;
    if (capture.capturing()) return capture.released().push_back(data);
    if (cudaSetDevice(queue_->device()) != cudaSuccess) return;
    if constexpr (kPoisons) cudaMemsetAsync(data, kPoison, bytes, queue_->stream());
    cudaFreeAsync(data, queue_->stream());
  }

  void zero(void* to, std::size_t bytes) override {
    queue_->make_current();
    fill(to, 0, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    queue_->make_current();
    move(to, from, bytes, cudaMemcpyDefault);
  }

  void upload(void* to, std::span<const std::byte> from) override {
    queue_->capture().cannot_repeat("copies from the host");
    queue_->make_current();
    auto* target = static_cast<std::byte*>(to);
    for (std::size_t i = 0; i < from.size(); i += Staging::kPiece) {
      const auto part = from.subspan(i, std::min(Staging::kPiece, from.size() - i));
      std::byte* staged = staging_.take(part.size(), *queue_);
      std::memcpy(staged, part.data(), part.size());
      move(target + i, staged, part.size(), cudaMemcpyHostToDevice);
      staging_.release(queue_->stream());
    }
  }

  void download(std::span<std::byte> to, const void* from) override {
    queue_->capture().cannot_repeat("copies to the host");
    // First, because a copy to memory that is not pinned makes its caller wait inside of the
    // driver.
    queue_->wait();
    move(to.data(), from, to.size(), cudaMemcpyDeviceToHost);
    check(cudaStreamSynchronize(queue_->stream()), "cudaStreamSynchronize");
  }

  void start_download(std::span<std::byte> to, const void* from) override {
    queue_->capture().cannot_repeat("copies to the host");
    queue_->make_current();
    if (to.empty()) return;
    if (is_pinned(to.data())) return move(to.data(), from, to.size(), cudaMemcpyDeviceToHost);
    const auto* source = static_cast<const std::byte*>(from);
    for (std::size_t i = 0; i < to.size(); i += Staging::kPiece) {
      const auto part = to.subspan(i, std::min(Staging::kPiece, to.size() - i));
      std::byte* staged = staging_.take(part.size(), *queue_);
      move(staged, source + i, part.size(), cudaMemcpyDeviceToHost);
      auto delivery = std::make_unique<Delivery>(part.data(), staged, part.size());
      check(cudaLaunchHostFunc(queue_->stream(), deliver, delivery.get()), "cudaLaunchHostFunc");
      delivery.release();  // by deliver()
      staging_.release(queue_->stream());
    }
  }

  std::shared_ptr<Fence> fence() override {
    const std::lock_guard lock(queue_->capture().mutex());
    if (queue_->capture().capturing()) queue_->capture().cannot_repeat("is to be waited for");
    return std::make_shared<QueueFence>(queue_);
  }
  void wait_for(Fence& fence) override {
    const std::lock_guard lock(queue_->capture().mutex());
    if (queue_->capture().capturing()) queue_->capture().cannot_repeat("waits for other work");
    hold(queue_->stream(), fence);
  }

  Queue& queue() const { return *queue_; }
  const std::shared_ptr<Queue>& shared_queue() const { return queue_; }

  DeviceMemory memory() const {
    const auto bytes = [this](cudaMemPoolAttr attribute) {
      std::uint64_t value = 0;
      check(cudaMemPoolGetAttribute(pool_, attribute, &value), "cudaMemPoolGetAttribute");
      return static_cast<std::int64_t>(value);
    };
    const std::int64_t in_use = bytes(cudaMemPoolAttrUsedMemCurrent);
    return {.in_use = in_use,
            .cached = bytes(cudaMemPoolAttrReservedMemCurrent) - in_use,
            .peak = bytes(cudaMemPoolAttrUsedMemHigh)};
  }

 private:
  // Null when there is no room.
  void* take(std::size_t bytes) {
    if (queue_->capture().takes_graph_memory()) {
      const std::lock_guard lock(queue_->capture().mutex());
      return queue_->capture().memory().take(bytes);
    }
    void* block = nullptr;
    const cudaError_t status =
        cudaMallocAsync(&block, std::max<std::size_t>(bytes, 1), queue_->stream());
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // or the next launch would report it
      return nullptr;
    }
    check(status, "cudaMallocAsync");
    return block;
  }

  void fill(void* to, int byte, std::size_t bytes) {
    if (bytes > 0) check(cudaMemsetAsync(to, byte, bytes, queue_->stream()), "cudaMemsetAsync");
  }
  void move(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, kind, queue_->stream()), "cudaMemcpyAsync");
  }

  std::shared_ptr<Queue> queue_;  // shared with fences
  cudaMemPool_t pool_ = nullptr;
  Staging staging_;
};

const CudaAllocator& cuda_allocator(const char* call, const Allocator& allocator) {
  const auto* found = dynamic_cast<const CudaAllocator*>(&allocator);
  if (found == nullptr) {
    throw InvalidArgument("[" + std::string(call) +
                          "] expected the allocator of a CUDA device, got that of " +
                          allocator.device().to_string());
  }
  return *found;
}

}  // namespace

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string device_id(int device) {
  char text[32] = {};
  check(cudaDeviceGetPCIBusId(text, sizeof text, device), "cudaDeviceGetPCIBusId");
  return text;
}

std::shared_ptr<Allocator> make_cuda_allocator(const CudaOptions& options) {
  return std::make_shared<CudaAllocator>(options);
}

void set_progress(Allocator& allocator, Progress* progress) {
  cuda_allocator("set_progress", allocator).queue().set_progress(progress);
}

std::int64_t host_waits(const Allocator& allocator) {
  return cuda_allocator("host_waits", allocator).queue().host_waits();
}

DeviceMemory device_memory(const Allocator& allocator) {
  return cuda_allocator("device_memory", allocator).memory();
}

std::shared_ptr<Queue> shared_queue(const Allocator& memory) {
  return cuda_allocator("graphs", memory).shared_queue();
}

Queue& queue_of(const Context& context) {
  Queue& queue = static_cast<CudaAllocator&>(*context.allocator).queue();
  queue.make_current();
  return queue;
}

}  // namespace penstock::tensor::cuda
