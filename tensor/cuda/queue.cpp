#include "tensor/cuda/queue.h"

#include <atomic>
#include <new>
#include <string>

#include "tensor/cuda/check.h"
#include "tensor/error.h"

namespace penstock::tensor::cuda {

namespace {

Fault* make_record() {
  void* block = nullptr;
  check(cudaHostAlloc(&block, sizeof(Fault), cudaHostAllocPortable), "cudaHostAlloc");
  return new (block) Fault();
}

}  // namespace

Queue::Queue(const CudaOptions& options) : options_(options) {
  const int count = device_count();
  if (options.device < 0 || options.device >= count) {
    throw InvalidArgument("[cuda] expected a device in [0, " + std::to_string(count) +
                          "), the devices that this process sees, got " +
                          std::to_string(options.device));
  }
  make_current();
  check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, options.device),
        "cudaDeviceGetAttribute");
  stream_ = make_stream();
  faults_.reset(make_record());
  blas_ = std::make_unique<Blas>(stream(), options.tf32);
}

Queue::~Queue() {
  finish();
}

void Queue::make_current() const {
  check(cudaSetDevice(options_.device), "cudaSetDevice");
}

void Queue::wait() {
  make_current();
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  throw_fault();
}

void Queue::throw_fault() {
  const auto describe = [this] {
    return std::atomic_ref(faults_->describe).load(std::memory_order_acquire);
  };
  if (describe() == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (describe() == nullptr) return;  // another thread has thrown it
  // A kernel that is still at work may have written this much of the record and not yet the rest.
  make_current();
  check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  const Fault fault = *faults_;
  std::atomic_ref(faults_->describe).store(nullptr, std::memory_order_release);
  throw InvalidArgument(fault.describe(fault));
}

void Queue::finish() const noexcept {
  if (cudaSetDevice(options_.device) == cudaSuccess) cudaStreamSynchronize(stream());
}

}  // namespace penstock::tensor::cuda
