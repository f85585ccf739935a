// The frame of every call of the emulated CUDA: the lock, and errors as CUDA gives them.
#pragma once

#include <utility>

#include "tests/cuda_emulation/machine.h"

namespace penstock::cuda_emulation {

// Keeps an error for cudaGetLastError; gives it back.
cudaError_t keep(cudaError_t error);

// True on a thread that runs a host function, which may not call CUDA.
bool& in_host_function();

// Calls body(machine, lock) with the lock held. Once emulated work has failed every call fails, as
// CUDA's do after an asynchronous error, those that give something back after doing so.
template <class Body>
cudaError_t call(Body&& body) {
  Machine& machine = Machine::get();
  Lock lock = machine.lock();
  if (in_host_function()) machine.fault("CUDA was called from a host function of a stream");
  if (machine.sticky() != cudaSuccess) return keep(machine.sticky());
  const cudaError_t error = std::forward<Body>(body)(machine, lock);
  return keep(machine.sticky() != cudaSuccess ? machine.sticky() : error);
}
template <class Body>
cudaError_t give_back(Body&& body) {
  Machine& machine = Machine::get();
  Lock lock = machine.lock();
  const cudaError_t error = std::forward<Body>(body)(machine, lock);
  return keep(machine.sticky() != cudaSuccess ? machine.sticky() : error);
}

// A handle that is no live stream, or whose destruction has begun.
inline bool is_usable(Machine& machine, cudaStream_t stream) {
  return machine.is_stream(stream) && !stream->destroyed;
}

// Ends a capture with failure: the call cannot be part of a graph.
inline cudaError_t break_capture(Stream& stream) {
  stream.capture_broken = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace penstock::cuda_emulation
