#include "comm/nccl/check.h"

#include <string>

#include "comm/error.h"

namespace penstock::comm::nccl {

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = ncclGetLastError(nullptr);
  throw CommError("[nccl] " + std::string(call) + " failed: " + ncclGetErrorString(result) +
                  (last == nullptr || *last == '\0' ? "" : " (" + std::string(last) + ")"));
}

}  // namespace penstock::comm::nccl
