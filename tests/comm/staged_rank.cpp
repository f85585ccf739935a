// The contract on tensors of a fake device that travel through memory of the host, messages between
// ranks of one process too.
#include "comm/device/staged_communicator.h"
#include "tests/comm/contract.h"
#include "tests/comm/fake_device.h"

namespace penstock::comm::testing {

void run_rank(World& world, const std::function<void(TestRank&)>& fn) {
  const auto make_memory = [] { return std::make_shared<FakeMemory>(0); };
  const std::shared_ptr<tensor::Allocator> memory = make_memory();
  device::StagedCommunicator all(world, world.all().split(0, world.rank()),
                                 device::StagedCommunicator::Messages::kStaged, memory,
                                 tensor::make_cpu_allocator());
  TestRank rank(world, all, {.kind = "staged"}, memory, make_memory);
  fn(rank);
  all.close();
}

}  // namespace penstock::comm::testing
