#include "engine/device.h"

#include <utility>

#include "tensor/cuda/cuda.h"

namespace penstock::engine {

namespace {

bool is_cuda(const tensor::Allocator& memory) {
  return memory.device().type == tensor::DeviceType::kCuda;
}

}  // namespace

comm::DevicePlan plan_device(const DeviceConfig& config, comm::World& world) {
  if (config.type == tensor::DeviceType::kCpu) return {};
  return comm::plan_devices(world, {.transport = config.transport, .sharing = config.sharing});
}

std::shared_ptr<tensor::Allocator> make_memory(const DeviceConfig& config,
                                               const comm::DevicePlan& plan) {
  if (config.type == tensor::DeviceType::kCpu) return tensor::make_cpu_allocator();
  return tensor::cuda::make_cuda_allocator({.device = plan.device, .tf32 = config.tf32});
}

comm::Links pipe_links(const schedule::StageMap& map, bool may_change) {
  const int ranks = map.num_ranks();
  if (ranks == 1) return comm::Links::kNone;
  if (may_change) return comm::Links::kAllPairs;
  for (int stage = 0; stage + 1 < map.num_stages(); ++stage) {
    const int from = map.rank_of(schedule::StageId(stage)).value;
    const int to = map.rank_of(schedule::StageId(stage + 1)).value;
    const int step = (to - from + ranks) % ranks;
    if (step > 1 && step < ranks - 1) return comm::Links::kAllPairs;
  }
  return comm::Links::kNeighbours;
}

std::string device_text(const tensor::Allocator& memory, comm::Transport transport) {
  if (!is_cuda(memory)) return memory.device().to_string();
  return memory.device().to_string() +
         (transport == comm::Transport::kNccl ? ", transfers by NCCL" : ", transfers staged");
}

std::optional<DeviceBytes> device_bytes(const tensor::Allocator& memory) {
  if (!is_cuda(memory)) return std::nullopt;
  const tensor::cuda::DeviceMemory bytes = tensor::cuda::device_memory(memory);
  return DeviceBytes{.allocated = bytes.in_use, .cached = bytes.cached, .peak = bytes.peak};
}

DeviceProgress::DeviceProgress(std::shared_ptr<tensor::Allocator> memory, comm::World& world)
    : memory_(std::move(memory)) {
  if (is_cuda(*memory_)) tensor::cuda::set_progress(*memory_, &world);
}

DeviceProgress::~DeviceProgress() {
  if (is_cuda(*memory_)) tensor::cuda::set_progress(*memory_, nullptr);
}

}  // namespace penstock::engine
