#include "tensor/cuda/queue.h"

#include <chrono>
#include <new>
#include <string>
#include <thread>

#include "tensor/cuda/check.h"
#include "tensor/cuda/event_fence.h"
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
  capture_.cannot_repeat("waits for the device");
  make_current();
  const EventFence here(device(), stream());
  wait_for(here.event());
  throw_fault();
}

// Giving the core away costs less than what a device takes for a step, and more than what it takes
// for a kernel.
void Queue::wait_for(cudaEvent_t event) {
  constexpr std::chrono::milliseconds kYieldTime{1};
  constexpr std::chrono::microseconds kNap{50};
  const auto is_reached = [event] {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  };
  if (is_reached()) return;
  host_waits_.fetch_add(1, std::memory_order_relaxed);
  if (progress_ == nullptr) {
    return check(cudaEventSynchronize(event), "cudaEventSynchronize");
  }
  const auto start = std::chrono::steady_clock::now();
  while (!is_reached()) {
    progress_->poll();
    make_current();
    if (std::chrono::steady_clock::now() - start < kYieldTime) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
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
