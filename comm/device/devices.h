// Which device a rank computes on, and how tensors of devices travel between ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "comm/world.h"
#include "tensor/allocator.h"

namespace penstock::comm {

// Call it first in a process that is to compute on devices with NCCL, before other threads start
// and before anything asks for a device: the driver and NCCL read the environment once. Sets,
// unless they are set, CUDA_DEVICE_MAX_CONNECTIONS to 32, CUDA_MODULE_LOADING to EAGER and
// NCCL_P2P_DIRECT_DISABLE to 1; docs/devices.md says why.
void prepare_devices();

enum class Transport : std::uint8_t {
  kAuto,   // NCCL where it can be, else staged
  kNccl,   // or an error
  kStaged  // through memory of the host; between ranks of one process messages are handed over
};

struct DeviceOptions {
  Transport transport = Transport::kAuto;
  bool sharing = false;  // ranks of one host may share a device; never with NCCL
};

// What a rank tells the others about itself.
struct RankDevice {
  int host = 0;  // the world rank of the first rank on its host
  std::string host_name;
  int host_rank = 0;
  int host_size = 1;
  int device_count = 0;    // that it sees
  int device = 0;          // that it takes, as it numbers them; -1: it sees none
  std::string device_id;   // of the device, whatever its number
  bool nccl = false;       // this build has NCCL
  int connections = 8;     // queues of the device that work can wait in at once
  bool loads_late = true;  // kernels are loaded when they are first started
  // NCCL reaches into tensors of other ranks of the process, on other devices.
  bool reaches_peers = false;
};

// What all ranks agree on.
struct DevicePlan {
  int device = 0;  // of this rank
  Transport transport = Transport::kStaged;
};

// The device of a rank by its place among the ranks of its host, of those that it sees: the
// launcher may show all devices to all ranks, or each rank one. -1 when there is none.
int device_of_local_rank(int host_rank, int device_count);

// kNccl or kStaged, the same on every rank. Throws InvalidArgument, naming the host, the local
// ranks and the number of devices, when a rank has no device, or ranks have the same one without
// sharing or with kNccl; Unsupported when kNccl is asked for and a rank's build has none;
// InvalidArgument when NCCL is to be used and a rank's environment is not that of
// prepare_devices().
Transport choose_transport(std::span<const RankDevice> ranks, const DeviceOptions& options);

// Collective over the world, and waits. Throws on every rank what choose_transport() throws.
DevicePlan plan_devices(World& world, const DeviceOptions& options);

// Between which members of a group messages travel. For NCCL, which connects them ahead.
enum class Links : std::uint8_t {
  kNone,
  kNeighbours,  // those next to each other, the last and the first too
  kAllPairs
};

// A communicator for tensors of the device that `memory` is of, and of the host, which `host`
// carries. Collective over the members of `host`, and waits. With memory of the host it is `host`
// itself. NCCL's reductions give the same bits on every member, but not those of the host's; its
// minimum and maximum may drop a NaN, and it reduces no i16, which throws Unsupported.
std::unique_ptr<Communicator> make_device_communicator(
    World& world, std::unique_ptr<Communicator> host, Transport transport,
    const std::shared_ptr<tensor::Allocator>& memory, Links links);

}  // namespace penstock::comm
