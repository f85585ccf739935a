// What the emulated NCCL tells of errors and of communicators.
#include <string>

#include <nccl.h>

#include "tests/cuda_emulation/clique.h"
#include "tests/cuda_emulation/machine.h"

using penstock::cuda_emulation::Lock;
using penstock::cuda_emulation::Machine;

const char* ncclGetErrorString(ncclResult_t result) {
  thread_local std::string text;
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError: {
      Lock lock = Machine::get().lock();
      text = "unhandled cuda error: " + Machine::get().fault_text();
      return text.c_str();
    }
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
  return ncclGetErrorString(ncclUnhandledCudaError);
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = static_cast<int>(comm->member->clique->devices.size());
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->member->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->member->rank;
  return ncclSuccess;
}
