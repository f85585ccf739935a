#include "comm/device/alone.h"

namespace penstock::comm {

void run_alone(const CollectiveCall& call, tensor::Allocator& memory) {
  if (!call.in.defined() || call.in.raw() == call.out.raw()) return;
  memory.copy(call.out.raw(), call.in.raw(), call.out.nbytes());
}

}  // namespace penstock::comm
