// Errors, devices, streams and events of the emulated runtime.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "tests/cuda_emulation/call.h"

namespace emulation = penstock::cuda_emulation;

namespace {

using emulation::call;
using emulation::give_back;
using emulation::is_usable;
using emulation::Lock;
using emulation::Machine;

constexpr int kProcessors = 4;  // few, so that kernels with a persistent grid loop
constexpr int kSharedPerBlock = 48 * 1024;
constexpr int kSharedOptin = 227 * 1024;

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t emulation::keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

bool& emulation::in_host_function() {
  thread_local bool in = false;
  return in;
}

cudaError_t cudaPeekAtLastError() {
  Lock lock = Machine::get().lock();
  return Machine::get().sticky() != cudaSuccess ? Machine::get().sticky() : last_error;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
#define PENSTOCK_EMULATED_NAME(name) \
  case name:                         \
    return #name;
  switch (error) {
    PENSTOCK_EMULATED_NAME(cudaSuccess)
    PENSTOCK_EMULATED_NAME(cudaErrorInvalidValue)
    PENSTOCK_EMULATED_NAME(cudaErrorMemoryAllocation)
    PENSTOCK_EMULATED_NAME(cudaErrorInitializationError)
    PENSTOCK_EMULATED_NAME(cudaErrorInvalidConfiguration)
    PENSTOCK_EMULATED_NAME(cudaErrorInvalidMemcpyDirection)
    PENSTOCK_EMULATED_NAME(cudaErrorNoDevice)
    PENSTOCK_EMULATED_NAME(cudaErrorInvalidDevice)
    PENSTOCK_EMULATED_NAME(cudaErrorInvalidResourceHandle)
    PENSTOCK_EMULATED_NAME(cudaErrorNotReady)
    PENSTOCK_EMULATED_NAME(cudaErrorIllegalAddress)
    PENSTOCK_EMULATED_NAME(cudaErrorLaunchTimeout)
    PENSTOCK_EMULATED_NAME(cudaErrorLaunchFailure)
    PENSTOCK_EMULATED_NAME(cudaErrorNotSupported)
    PENSTOCK_EMULATED_NAME(cudaErrorStreamCaptureUnsupported)
    PENSTOCK_EMULATED_NAME(cudaErrorStreamCaptureInvalidated)
    PENSTOCK_EMULATED_NAME(cudaErrorUnknown)
  }
#undef PENSTOCK_EMULATED_NAME
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  // Kept for the thread's next call, which is as long as callers look at it.
  thread_local std::string text;
  Lock lock = Machine::get().lock();
  const Machine& machine = Machine::get();
  text = error != cudaSuccess && error == machine.sticky() ? machine.fault_text()
                                                           : cudaGetErrorName(error);
  return text.c_str();
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call([&](Machine& machine, Lock&) {
    *count = machine.options().devices;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call([&](Machine& machine, Lock&) {
    if (device < 0 || device >= machine.options().devices) return cudaErrorInvalidDevice;
    emulation::current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call([&](Machine&, Lock&) {
    *device = emulation::current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return call([&](Machine& machine, Lock&) {
    if (device < 0 || device >= machine.options().devices) return cudaErrorInvalidDevice;
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&](Machine& machine, Lock&) {
    if (device < 0 || device >= machine.options().devices) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kSharedPerBlock;
        break;
      case cudaDevAttrWarpSize:
        *value = 32;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = kProcessors;
        break;
      case cudaDevAttrL2CacheSize:
        *value = 50 << 20;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = 228 * 1024;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kSharedOptin;
        break;
      case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Machine& machine, Lock&) {
    if (device < 0 || device >= machine.options().devices) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "emulated device %d", device);
    properties->totalGlobalMem = machine.options().memory_bytes;
    properties->sharedMemPerBlock = kSharedPerBlock;
    properties->sharedMemPerBlockOptin = kSharedOptin;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->major = 9;
    properties->multiProcessorCount = kProcessors;
    properties->l2CacheSize = 50 << 20;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([&](Machine& machine, Lock& lock) {
    const int device = emulation::current_device();
    emulation::Clock clock;
    const std::vector<cudaStream_t> streams = machine.streams_of(device);
    for (cudaStream_t stream : streams) emulation::join(clock, stream->clock);
    machine.synchronise(
        lock,
        [&] {
          return std::all_of(streams.begin(), streams.end(), [&](cudaStream_t stream) {
            return !machine.is_stream(stream) || stream->queue.empty();
          });
        },
        clock, "cudaDeviceSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call([&](Machine& machine, Lock&) {
    const int count = machine.options().devices;
    if (device < 0 || device >= count || peer < 0 || peer >= count) return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&](Machine& machine, Lock&) {
    // The others are ordered after the default stream, which is not emulated.
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;
    const int device = emulation::current_device();
    if (device >= machine.options().devices) return cudaErrorInvalidDevice;
    *stream = machine.create_stream(device);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return give_back([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    machine.destroy_stream(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return break_capture(*stream);
    // What is queued now; others may go on queueing.
    const std::uint64_t target = stream->finished + stream->queue.size();
    const emulation::Clock clock = stream->clock;
    machine.synchronise(
        lock, [&] { return stream->finished >= target; }, clock,
        "cudaStreamSynchronize of stream " + std::to_string(stream->id));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call([&](Machine& machine, Lock& lock) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return break_capture(*stream);
    if (!stream->queue.empty()) machine.advance(lock);
    if (!stream->queue.empty()) return cudaErrorNotReady;
    machine.saw(stream->clock);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream)) return cudaErrorInvalidResourceHandle;
    auto operation = std::make_shared<emulation::Operation>();
    operation->what = "a host function";
    operation->run = [function, data] {
      emulation::in_host_function() = true;
      function(data);
      emulation::in_host_function() = false;
    };
    machine.enqueue(*stream, std::move(operation));
    return cudaSuccess;
  });
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&](Machine& machine, Lock&) {
    *event =
        machine.create_event(emulation::current_device(), (flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return give_back([&](Machine& machine, Lock&) {
    if (!machine.is_event(event)) return cudaErrorInvalidResourceHandle;
    machine.destroy_event(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream) || !machine.is_event(event)) {
      return cudaErrorInvalidResourceHandle;
    }
    if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return break_capture(*stream);
    machine.record(*event, *stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call([&](Machine& machine, Lock&) {
    if (!is_usable(machine, stream) || !machine.is_event(event)) {
      return cudaErrorInvalidResourceHandle;
    }
    if (stream->capture != nullptr) return break_capture(*stream);
    machine.wait(*stream, *event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Machine& machine, Lock& lock) {
    if (!machine.is_event(event)) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<emulation::Record> record = event->record;
    if (record == nullptr) return cudaSuccess;
    if (!record->reached) machine.advance(lock);
    if (!record->reached) return cudaErrorNotReady;
    machine.saw(record->clock);
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Machine& machine, Lock& lock) {
    if (!machine.is_event(event)) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<emulation::Record> record = event->record;
    if (record == nullptr) return cudaSuccess;
    machine.synchronise(
        lock, [&] { return record->reached; }, record->clock, "cudaEventSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return call([&](Machine& machine, Lock&) {
    if (!machine.is_event(from) || !machine.is_event(to) || !from->timed || !to->timed ||
        from->record == nullptr || to->record == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!from->record->reached || !to->record->reached) return cudaErrorNotReady;
    *milliseconds =
        static_cast<float>(to->record->reached_at) - static_cast<float>(from->record->reached_at);
    return cudaSuccess;
  });
}
