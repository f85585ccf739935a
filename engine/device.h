// Where a rank computes: the CPU, or a device of its host.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/device/devices.h"
#include "comm/world.h"
#include "engine/config.h"
#include "engine/rank_report.h"
#include "schedule/stage_map.h"
#include "tensor/allocator.h"

namespace penstock::engine {

// How tensors of the device travel, as all ranks have agreed, and this rank's device; for the CPU
// that of nothing. Collective over the world. Throws, on every rank, what comm::plan_devices()
// throws, naming host, local ranks and devices.
comm::DevicePlan plan_device(const DeviceConfig& config, comm::World& world);

// The memory of the rank's device, which decides where operations run. Throws Unsupported in a
// build without that kind of device, and DeviceError.
std::shared_ptr<tensor::Allocator> make_memory(const DeviceConfig& config,
                                               const comm::DevicePlan& plan);

// Between which places of the pipe messages go. `may_change`: another map may come later.
comm::Links pipe_links(const schedule::StageMap& map, bool may_change);

// "cuda:1, transfers by NCCL"; "cpu".
std::string device_text(const tensor::Allocator& memory, comm::Transport transport);

// What the driver holds on the memory's device; none for the CPU.
std::optional<DeviceBytes> device_bytes(const tensor::Allocator& memory);

// While it lives, calls that wait for the memory's device move this rank's part of transfers on.
class DeviceProgress {
 public:
  // Borrows the world.
  DeviceProgress(std::shared_ptr<tensor::Allocator> memory, comm::World& world);
  ~DeviceProgress();
  DeviceProgress(const DeviceProgress&) = delete;
  DeviceProgress& operator=(const DeviceProgress&) = delete;

 private:
  std::shared_ptr<tensor::Allocator> memory_;
};

}  // namespace penstock::engine
