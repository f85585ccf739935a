// The contract on tensors of the host.
#include "tests/comm/contract.h"

namespace penstock::comm::testing {

void run_rank(World& world, const std::function<void(TestRank&)>& fn) {
  TestRank rank(world, world.all(), {.kind = world.kind()}, tensor::make_cpu_allocator(),
                tensor::make_cpu_allocator);
  fn(rank);
}

}  // namespace penstock::comm::testing
