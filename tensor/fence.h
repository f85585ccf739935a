// Fence: a point in the work that was queued on a device.
#pragma once

namespace penstock::tensor {

// Reached once all work queued before it is done. Made by Allocator::fence(). May be asked, and
// waited for by other allocators, from any thread.
class Fence {
 public:
  virtual ~Fence() = default;
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  // Never waits. Throws DeviceError when the device has failed.
  virtual bool reached() = 0;
  // Waits. Throws DeviceError when the device has failed.
  virtual void wait() = 0;

 protected:
  Fence() = default;
};

}  // namespace penstock::tensor
