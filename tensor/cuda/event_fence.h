// EventFence: a point in a stream, which an event marks.
#pragma once

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"
#include "tensor/cuda/handle.h"
#include "tensor/fence.h"

namespace penstock::tensor::cuda {

class EventFence : public Fence {
 public:
  // Marks what is queued on the stream now. Makes the device the calling thread's, for an event
  // belongs to the one that it was made on.
  EventFence(int device, cudaStream_t stream) {
    check(cudaSetDevice(device), "cudaSetDevice");
    event_ = make_event();
    check(cudaEventRecord(event(), stream), "cudaEventRecord");
  }

  bool reached() override {
    const cudaError_t status = cudaEventQuery(event());
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  void wait() override { check(cudaEventSynchronize(event()), "cudaEventSynchronize"); }
  cudaEvent_t event() const { return event_.get(); }

 private:
  Event event_;
};

// What is queued on the stream from now on runs after the fence.
inline void hold(cudaStream_t stream, Fence& fence) {
  const auto* marked = dynamic_cast<EventFence*>(&fence);
  if (marked == nullptr) return fence.wait();
  check(cudaStreamWaitEvent(stream, marked->event(), 0), "cudaStreamWaitEvent");
}

}  // namespace penstock::tensor::cuda
