// Observers for runs whose operations only queue work on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "comm/world.h"
#include "engine/observer.h"
#include "tensor/allocator.h"

namespace penstock::engine {

// Waits after each instruction until the device has done it, for observers after it that read
// clocks or memory. The device then idles between instructions: for measuring alone.
class DeviceWait final : public Observer {
 public:
  // Borrows the world. With memory of the host there is nothing to wait for.
  DeviceWait(comm::World& world, std::shared_ptr<tensor::Allocator> memory)
      : world_(world), memory_(std::move(memory)) {}

  void before(std::int64_t step, const schedule::Instruction& instruction) override;
  void after(std::int64_t step, const schedule::Instruction& instruction) override;

 private:
  comm::World& world_;
  std::shared_ptr<tensor::Allocator> memory_;
};

// Shows each instruction as a span in NVIDIA's profilers, such as "ForwardPass(c0 m5 b1)".
class ProfilerSpans final : public Observer {
 public:
  ProfilerSpans() = default;
  ProfilerSpans(const ProfilerSpans&) = delete;
  ProfilerSpans& operator=(const ProfilerSpans&) = delete;
  ~ProfilerSpans() override;  // ends the span of an instruction that failed

  void before(std::int64_t step, const schedule::Instruction& instruction) override;
  void after(std::int64_t step, const schedule::Instruction& instruction) override;

 private:
  bool open_ = false;
};

}  // namespace penstock::engine
