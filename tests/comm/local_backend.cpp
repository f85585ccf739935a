// Runs the contract on ranks that are threads of this process.
#include "tests/comm/contract.h"

namespace penstock::comm::testing {

std::vector<int> world_sizes() {
  return {1, 2, 3, 5};
}

void run_ranks(int ranks, const std::function<void(TestRank&)>& fn) {
  run_local(ranks, {.timeout_seconds = 60.0}, [&fn](World& world) {
    run_rank(world, fn);
    world.close();
  });
}

}  // namespace penstock::comm::testing
