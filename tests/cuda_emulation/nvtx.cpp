// Ranges of the emulated NVTX.
#include <nvtx3/nvToolsExt.h>

#include "tests/cuda_emulation/machine.h"

using penstock::cuda_emulation::Lock;
using penstock::cuda_emulation::Machine;

int nvtxRangePushA(const char* name) {
  Lock lock = Machine::get().lock();
  ++Machine::get().counters().ranges[name];
  return ++Machine::get().objects()["open NVTX range"] - 1;
}

int nvtxRangePop() {
  Lock lock = Machine::get().lock();
  return --Machine::get().objects()["open NVTX range"];
}
