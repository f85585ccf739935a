// Queueing kernels.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "tests/cuda_emulation/call.h"
#include "tests/cuda_emulation/grid.h"
#include "tests/cuda_emulation/launch_call.h"

namespace penstock::cuda_emulation {

namespace {

constexpr std::size_t kSharedWithoutAsking = 48 * 1024;
constexpr int kSharedOptin = 227 * 1024;

// CUDA's limits on the shape of a launch.
bool fits(const Launch& launch) {
  const dim3& blocks = launch.blocks;
  const dim3& threads = launch.threads;
  const std::size_t in_block = std::size_t{threads.x} * threads.y * threads.z;
  return in_block >= 1 && in_block <= 1024 && threads.z <= 64 && blocks.x <= 0x7fffffffu &&
         blocks.y <= 0xffffu && blocks.z <= 0xffffu;
}

}  // namespace

cudaError_t queue_kernel(const Launch& launch, cudaStream_t stream, std::function<void()> body) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream) || stream->device != current_device()) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!fits(launch)) return cudaErrorInvalidConfiguration;
    if (launch.shared_bytes > kSharedWithoutAsking &&
        launch.shared_bytes > static_cast<std::size_t>(machine.shared_limits()[launch.function])) {
      return cudaErrorInvalidValue;
    }
    const std::string name = name_of_function(launch.function);
    ++machine.counters().launches[name];
    std::size_t& most = machine.counters().shared_bytes[name];
    most = std::max(most, launch.shared_bytes);
    auto operation = std::make_shared<Operation>();
    operation->what = "kernel " + name;
    for (const void* word : launch.words) {
      const Block* block = machine.memory().find(word);
      if (block == nullptr) continue;
      operation->blocks.push_back(block->data);
      if (block->device != kPinned && block->device != stream->device &&
          !machine.pool(block->device).readers.contains(stream->device)) {
        machine.fault("kernel " + name + " on device " + std::to_string(stream->device) +
                      " was given a block of device " + std::to_string(block->device));
      }
    }
    Grid grid{name,           launch.synchronising, launch.blocks,
              launch.threads, launch.shared_bytes,  machine.random().next()};
    operation->run = [grid = std::move(grid), body = std::move(body)] { run_grid(grid, body); };
    machine.enqueue(*stream, std::move(operation));
    return cudaSuccess;
  });
}

}  // namespace penstock::cuda_emulation

cudaError_t cudaFuncSetAttributeOf(const void* function, cudaFuncAttribute attribute, int value) {
  using namespace penstock::cuda_emulation;
  return call([&](Machine& machine, Lock&) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > kSharedOptin) return cudaErrorInvalidValue;
    machine.shared_limits()[function] = value;
    return cudaSuccess;
  });
}
