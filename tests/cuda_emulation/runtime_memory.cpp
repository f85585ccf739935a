// Memory of the emulated runtime: blocks, pools, copies and fills.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "tests/cuda_emulation/call.h"
#include "tests/cuda_emulation/fault.h"

namespace emulation = penstock::cuda_emulation;

namespace {

using emulation::Block;
using emulation::break_capture;
using emulation::call;
using emulation::give_back;
using emulation::is_usable;
using emulation::Lock;
using emulation::Machine;
using emulation::Operation;
using emulation::Pool;
using emulation::Stream;

void count_used(Pool& pool, std::size_t bytes) {
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  pool.reserved = std::max(pool.reserved, pool.used);
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
}

void count_free(Machine& machine, const Block& block) {
  Pool& pool = machine.pool(block.device);
  (block.of_pool ? pool.used : pool.outside) -= block.bytes;
}

bool has_room(Machine& machine, int device, std::size_t bytes) {
  const Pool& pool = machine.pool(device);
  return pool.used + pool.outside + bytes <= machine.options().memory_bytes;
}

// What lies at one end of a copy.
struct End {
  Block* block = nullptr;  // null: memory that CUDA knows nothing of
  bool on_device() const { return block != nullptr && block->device != emulation::kPinned; }
};

// Finds the block and checks that the bytes are within it.
cudaError_t find_end(Machine& machine, const void* data, std::size_t bytes, const char* call_name,
                     End& end) {
  end.block = machine.memory().find(data);
  if (end.block == nullptr) return cudaSuccess;
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(data) - end.block->data);
  if (offset + bytes <= end.block->bytes) return cudaSuccess;
  machine.fault(std::string(call_name) + " of " + std::to_string(bytes) + " bytes at offset " +
                std::to_string(offset) + " of " + machine.memory().describe(*end.block) +
                " leaves it");
  return cudaErrorInvalidValue;
}

bool suits(const End& to, const End& from, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to.on_device() && !from.on_device();
    case cudaMemcpyHostToDevice:
      return to.on_device() && !from.on_device();
    case cudaMemcpyDeviceToHost:
      return !to.on_device() && from.on_device();
    case cudaMemcpyDeviceToDevice:
      return to.on_device() && from.on_device();
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

struct Rows {
  std::byte* to = nullptr;
  std::size_t to_pitch = 0;
  const std::byte* from = nullptr;
  std::size_t from_pitch = 0;
  std::size_t width = 0;
  std::size_t height = 0;

  void copy() const {
    for (std::size_t i = 0; i < height; ++i) {
      std::memmove(to + i * to_pitch, from + i * from_pitch, width);
    }
  }
};

std::size_t extent(std::size_t pitch, std::size_t width, std::size_t height) {
  return (height - 1) * pitch + width;
}

// From memory that is not pinned CUDA copies before it returns; to such memory it waits.
cudaError_t copy_rows(Machine& machine, Lock& lock, Rows rows, cudaMemcpyKind kind,
                      cudaStream_t stream, const char* name) {
  if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  if (rows.width > rows.to_pitch || rows.width > rows.from_pitch) return cudaErrorInvalidValue;
  const std::size_t from_bytes = extent(rows.from_pitch, rows.width, rows.height);
  End to, from;
  cudaError_t error =
      find_end(machine, rows.to, extent(rows.to_pitch, rows.width, rows.height), name, to);
  if (error == cudaSuccess) error = find_end(machine, rows.from, from_bytes, name, from);
  if (error != cudaSuccess) return error;
  if (!suits(to, from, kind)) return cudaErrorInvalidValue;
  const bool waits = to.block == nullptr;
  if ((waits || from.block == nullptr) && stream->capture != nullptr) {
    return break_capture(*stream);
  }
  auto operation = std::make_shared<Operation>();
  operation->what = name;
  if (to.block != nullptr) operation->blocks.push_back(to.block->data);
  if (from.block != nullptr) {
    operation->blocks.push_back(from.block->data);
    operation->run = [rows] { rows.copy(); };
  } else {
    operation->run = [rows, staged = std::vector<std::byte>(rows.from, rows.from + from_bytes)] {
      Rows from_staged = rows;
      from_staged.from = staged.data();
      from_staged.copy();
    };
  }
  ++machine.counters().copies;
  machine.counters().copied_bytes += static_cast<std::int64_t>(rows.width * rows.height);
  const std::uint64_t target = stream->finished + stream->queue.size() + 1;
  machine.enqueue(*stream, std::move(operation));
  if (waits) {
    machine.synchronise(
        lock, [&] { return stream->finished >= target; }, stream->clock, name);
  }
  return cudaSuccess;
}

}  // namespace

// ---- blocks

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  return call([&](Machine& machine, Lock&) {
    const int device = emulation::current_device();
    if (!has_room(machine, device, bytes)) return cudaErrorMemoryAllocation;
    machine.pool(device).outside += bytes;
    ++machine.counters().allocations;
    *block = machine.memory().allocate(device, bytes, {0, 0, "cudaMalloc"}).data;
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* block) {
  if (block == nullptr) return cudaSuccess;
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return error;
  return call([&](Machine& machine, Lock&) {
    Block* found = machine.memory().find(block);
    if (found == nullptr || found->data != block || found->device == emulation::kPinned) {
      return cudaErrorInvalidValue;
    }
    emulation::Clock all(1);
    for (const auto& [stream, use] : found->last_use) {
      all.resize(std::max(all.size(), static_cast<std::size_t>(stream) + 1));
      all[static_cast<std::size_t>(stream)] = use.count;
    }
    std::string wrong = machine.memory().release(*found, {0, 0, "cudaFree"}, all);
    if (wrong.empty()) {
      count_free(machine, *found);
      wrong = machine.memory().retire(*found);
    }
    if (!wrong.empty()) machine.fault(wrong);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return break_capture(*stream);
    if (bytes == 0) {
      *block = nullptr;
      return cudaSuccess;
    }
    if (!has_room(machine, stream->device, bytes)) return cudaErrorMemoryAllocation;
    count_used(machine.pool(stream->device), bytes);
    ++machine.counters().allocations;
    Block& fresh = machine.memory().allocate(stream->device, bytes,
                                             machine.next_moment(*stream, "cudaMallocAsync"));
    fresh.of_pool = true;
    *block = fresh.data;
    auto operation = std::make_shared<Operation>();
    operation->what = "cudaMallocAsync";
    operation->run = [] {};
    machine.enqueue(*stream, std::move(operation));
    return cudaSuccess;
  });
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  if (block == nullptr) return cudaSuccess;
  return give_back([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return break_capture(*stream);
    Block* found = machine.memory().find(block);
    if (found == nullptr || found->data != block || found->device == emulation::kPinned) {
      machine.fault("cudaFreeAsync was given an address at which no block begins");
      return cudaErrorInvalidValue;
    }
    emulation::join(stream->clock, machine.host_clock());
    const std::string wrong = machine.memory().release(
        *found, machine.next_moment(*stream, "cudaFreeAsync"), stream->clock);
    if (!wrong.empty()) machine.fault(wrong);
    count_free(machine, *found);
    auto operation = std::make_shared<Operation>();
    operation->what = "cudaFreeAsync";
    operation->locked = true;
    operation->run = [&machine, found] {
      const std::string late = machine.memory().retire(*found);
      if (!late.empty()) throw emulation::Fault(late);
    };
    machine.enqueue(*stream, std::move(operation));
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
  return call([&](Machine& machine, Lock&) {
    *block = machine.memory().allocate(emulation::kPinned, bytes, {0, 0, "cudaHostAlloc"}).data;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  return cudaHostAlloc(block, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* block) {
  if (block == nullptr) return cudaSuccess;
  return give_back([&](Machine& machine, Lock&) {
    Block* found = machine.memory().find(block);
    if (found == nullptr || found->data != block || found->device != emulation::kPinned) {
      return cudaErrorInvalidValue;
    }
    // The real call may wait for the device or may not; who frees must have waited.
    std::string wrong =
        machine.memory().release(*found, {0, 0, "cudaFreeHost"}, machine.host_clock());
    if (wrong.empty()) wrong = machine.memory().retire(*found);
    if (!wrong.empty()) machine.fault(wrong);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call([&](Machine& machine, Lock&) {
    const Block* block = machine.memory().find(pointer);
    auto* data = const_cast<void*>(pointer);
    if (block == nullptr || block->released) {
      *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, data};
    } else if (block->device == emulation::kPinned) {
      *attributes = {cudaMemoryTypeHost, 0, data, data};
    } else {
      *attributes = {cudaMemoryTypeDevice, block->device, data, nullptr};
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call([&](Machine& machine, Lock&) {
    *total = machine.options().memory_bytes;
    *free = *total - machine.pool(emulation::current_device()).reserved;
    return cudaSuccess;
  });
}

// ---- copies and fills

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    const Rows rows{
        static_cast<std::byte*>(to), bytes, static_cast<const std::byte*>(from), bytes, bytes, 1};
    return copy_rows(machine, lock, rows, kind, stream, "cudaMemcpyAsync");
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    const Rows rows{static_cast<std::byte*>(to),
                    to_pitch,
                    static_cast<const std::byte*>(from),
                    from_pitch,
                    width,
                    height};
    return copy_rows(machine, lock, rows, kind, stream, "cudaMemcpy2DAsync");
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    for (const auto& [data, device] : {std::pair<const void*, int>(to, to_device),
                                       std::pair<const void*, int>(from, from_device)}) {
      const Block* block = machine.memory().find(data);
      if (block == nullptr || block->device != device) return cudaErrorInvalidValue;
    }
    const Rows rows{
        static_cast<std::byte*>(to), bytes, static_cast<const std::byte*>(from), bytes, bytes, 1};
    return copy_rows(machine, lock, rows, cudaMemcpyDeviceToDevice, stream, "cudaMemcpyPeerAsync");
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    End end;
    const cudaError_t error = find_end(machine, to, bytes, "cudaMemsetAsync", end);
    if (error != cudaSuccess) return error;
    if (!end.on_device()) return cudaErrorInvalidValue;
    auto operation = std::make_shared<Operation>();
    operation->what = "cudaMemsetAsync";
    operation->blocks.push_back(end.block->data);
    operation->run = [to, value, bytes] { std::memset(to, value, bytes); };
    ++machine.counters().copies;
    machine.enqueue(*stream, std::move(operation));
    return cudaSuccess;
  });
}
