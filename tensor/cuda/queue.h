// Queue: what a rank computes with on its device. All work of the rank's operations goes through
// its one stream, so each operation sees what those before it wrote.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include <cuda_runtime.h>

#include "tensor/context.h"
#include "tensor/cuda/blas.h"
#include "tensor/cuda/capture.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/fault.h"
#include "tensor/cuda/handle.h"

namespace penstock::tensor::cuda {

class Queue {
 public:
  explicit Queue(const CudaOptions& options);
  ~Queue();  // waits for what is queued
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return options_.device; }
  cudaStream_t stream() const { return stream_.get(); }
  Blas& blas() { return *blas_; }
  Capture& capture() { return capture_; }
  // Number of multiprocessors: how many blocks a kernel with a persistent grid starts.
  int processors() const { return processors_; }

  // Makes the device the calling thread's. Whatever queues work or makes events calls it before.
  void make_current() const;

  // Where kernels write what they find wrong with data; the device and the host see it.
  Fault* faults() const { return faults_.get(); }
  // Waits until all that is queued is done. Throws DeviceError; InvalidArgument when a kernel has
  // found a fault in data, once for each. Like the next, on the rank's thread, and again and again
  // it calls who was given to set_progress(), which may use the queue.
  void wait();
  // Waits until the device has come to the event.
  void wait_for(cudaEvent_t event);
  void set_progress(Progress* progress) { progress_ = progress; }
  // Calls of these two for which the device was not done.
  std::int64_t host_waits() const { return host_waits_.load(std::memory_order_relaxed); }
  // Throws that InvalidArgument where there is a fault. From any thread.
  void throw_fault();
  // Waits and throws nothing: for destructors.
  void finish() const noexcept;

 private:
  CudaOptions options_;
  Progress* progress_ = nullptr;
  std::atomic<std::int64_t> host_waits_{0};
  int processors_ = 1;
  Capture capture_;
  Stream stream_;
  std::unique_ptr<Blas> blas_;
  std::mutex mutex_;  // of who throws a fault
  std::unique_ptr<Fault, Destroy<cudaFreeHost>> faults_;
};

// The queue behind a context whose device is CUDA's; makes its device the calling thread's.
Queue& queue_of(const Context& context);
// That of make_cuda_allocator's memory. Throws InvalidArgument for other memory.
std::shared_ptr<Queue> shared_queue(const Allocator& memory);

}  // namespace penstock::tensor::cuda
