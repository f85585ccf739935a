// SideStream: work of a device that runs beside what its rank computes, such as transfers. No
// header of CUDA is needed to include this; a build without PENSTOCK_CUDA has none.
#pragma once

#include <memory>

#include "tensor/allocator.h"
#include "tensor/fence.h"

namespace penstock::tensor::cuda {

// Runs what is queued on it in order, before blocks of computing that have not begun. Belongs to
// one thread.
class SideStream {
 public:
  // Makes the device the calling thread's. Throws DeviceError.
  explicit SideStream(int device);
  // Does not wait for what is queued.
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  void* native() const { return stream_; }  // the cudaStream_t
  // What is queued now.
  std::shared_ptr<Fence> fence() const;
  // Whether all of it is done. Never waits. True too when the device has failed.
  bool idle() const noexcept;
  // Work queued from now on runs after what the fence, of any device of CUDA's, stands for.
  void wait_for(Fence& fence);

 private:
  int device_;
  void* stream_ = nullptr;
};

// Memory for what work on the stream is to write. Its blocks can be written by the stream at once,
// whatever the memory's own queue has still to do (but after that where there was no other room),
// and go back to the memory in the order of the memory's queue, which must have waited for the
// writing by then. Everything else is the memory's.
std::shared_ptr<Allocator> arrival_memory(std::shared_ptr<SideStream> stream,
                                          std::shared_ptr<Allocator> memory);

}  // namespace penstock::tensor::cuda
