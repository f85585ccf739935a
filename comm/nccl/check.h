// Errors of NCCL's calls become exceptions.
#pragma once

#include <nccl.h>

namespace penstock::comm::nccl {

// Throws CommError, naming the call, unless it succeeded or goes on in the background.
void check(ncclResult_t result, const char* call);

}  // namespace penstock::comm::nccl
