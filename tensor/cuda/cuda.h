// CUDA devices as the rest of the library sees them. No header of CUDA is needed to include this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/allocator.h"
#include "tensor/context.h"

namespace penstock::tensor::cuda {

// Devices that this process sees: 0 without a driver, and in a build without PENSTOCK_CUDA.
int device_count();
// Where on its host a device is plugged in: tells two devices of a host apart for all processes
// there, however each numbers those that it sees.
std::string device_id(int device);

struct CudaOptions {
  int device = 0;     // as this process numbers them
  bool tf32 = false;  // products of f32 may round their factors to 10 bits of mantissa
};

// Memory of a device, and the stream on which all operations of the contexts made from it run, in
// the order of their calls. Calls queue work and return; see Allocator for what waits. One rank's,
// like every allocator; several ranks may each have one on the same device.
//
// Throws Unsupported, naming PENSTOCK_CUDA, in a build without it; InvalidArgument for a device
// that is not there; DeviceError when the driver refuses.
std::shared_ptr<Allocator> make_cuda_allocator(const CudaOptions& options);

// Whoever moves this rank's part of transfers on, while a call on the rank's thread waits for the
// device: what the device computes may need another rank, and that rank this one. Borrowed; null,
// as at first: nobody.
void set_progress(Allocator& allocator, Progress* progress);
// How many calls had to wait for the device.
std::int64_t host_waits(const Allocator& allocator);

// Host memory that a device reads and writes without the driver's copying it first.
std::shared_ptr<Allocator> make_pinned_allocator();

// Bytes that the driver holds for the process on a device, beside what MemoryCounters counts.
struct DeviceMemory {
  std::int64_t in_use = 0;  // blocks that are given out
  std::int64_t cached = 0;  // kept for the next blocks
  std::int64_t peak = 0;    // the most that was in use
};
DeviceMemory device_memory(const Allocator& allocator);

}  // namespace penstock::tensor::cuda
