#include "tensor/cuda/profiler.h"

#include <nvtx3/nvToolsExt.h>

namespace penstock::tensor::cuda {

void begin_span(const char* name) noexcept {
  nvtxRangePushA(name);
}

void end_span() noexcept {
  nvtxRangePop();
}

}  // namespace penstock::tensor::cuda
