// The memory pools of the emulated runtime: what they count, since blocks themselves are never
// given out twice while anyone could still touch them.
#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "tests/cuda_emulation/call.h"

using penstock::cuda_emulation::call;
using penstock::cuda_emulation::Lock;
using penstock::cuda_emulation::Machine;

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call([&](Machine& machine, Lock&) {
    if (device < 0 || device >= machine.options().devices) return cudaErrorInvalidDevice;
    *pool = &machine.pool(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&](Machine&, Lock&) {
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        pool->threshold = *static_cast<std::uint64_t*>(value);
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:  // these can be set to 0 alone: back to what is now
        pool->reserved_high = pool->reserved;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:
        pool->used_high = pool->used;
        return cudaSuccess;
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&](Machine&, Lock&) {
    auto& out = *static_cast<std::uint64_t*>(value);
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        out = pool->threshold;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemCurrent:
        out = pool->reserved;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
        out = pool->reserved_high;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemCurrent:
        out = pool->used;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:
        out = pool->used_high;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes_to_keep) {
  return call([&](Machine&, Lock&) {
    pool->reserved = std::max(pool->used, std::min<std::uint64_t>(pool->reserved, bytes_to_keep));
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access,
                                 std::size_t count) {
  return call([&](Machine& machine, Lock&) {
    for (std::size_t i = 0; i < count; ++i) {
      const int device = access[i].location.id;
      if (device < 0 || device >= machine.options().devices) return cudaErrorInvalidDevice;
      if (access[i].flags == cudaMemAccessFlagsProtNone) {
        pool->readers.erase(device);
      } else {
        pool->readers.insert(device);
      }
    }
    return cudaSuccess;
  });
}
