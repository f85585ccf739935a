#include "comm/device/devices.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <unistd.h>

#include "comm/collective.h"
#include "comm/device/staged_communicator.h"
#include "comm/nccl/nccl.h"
#include "tensor/cuda/cuda.h"
#include "tensor/error.h"

namespace penstock::comm {

namespace {

using tensor::InvalidArgument;

constexpr char kConnections[] = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr char kLoading[] = "CUDA_MODULE_LOADING";
constexpr char kNoReaching[] = "NCCL_P2P_DIRECT_DISABLE";
constexpr int kDefaultConnections = 8;  // the driver's
// One for each stream of a rank that has two neighbours in the pipe, and some for the groups.
constexpr int kNeededConnections = 32;

int number_of(const char* variable, int value_if_unset) {
  const char* text = std::getenv(variable);
  int value = value_if_unset;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
  return value;
}

bool loads_late() {
  const char* text = std::getenv(kLoading);
  return text == nullptr || std::strcmp(text, "EAGER") != 0;
}

std::string name_of_host() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "(unnamed)";
}

std::string count(int number, std::string_view what) {
  return std::to_string(number) + " " + std::string(what) + (number == 1 ? "" : "s");
}

RankDevice describe_self(const World& world) {
  RankDevice self{.host = world.host_leader(),
                  .host_name = name_of_host(),
                  .host_rank = world.host_rank(),
                  .host_size = world.host_size(),
                  .device_count = tensor::cuda::device_count(),
                  .device = -1,
                  .device_id = {},
                  .nccl = nccl::is_built(),
                  .connections = number_of(kConnections, kDefaultConnections),
                  .loads_late = loads_late(),
                  .reaches_peers = world.kind() == "local" && number_of(kNoReaching, 0) == 0};
  self.device = device_of_local_rank(self.host_rank, self.device_count);
  if (self.device >= 0) self.device_id = tensor::cuda::device_id(self.device);
  return self;
}

// The host's name and the device's id are the last, for they may hold anything.
std::string encode(const RankDevice& rank) {
  std::string text;
  for (const int number :
       {rank.host, rank.host_rank, rank.host_size, rank.device_count, rank.device,
        static_cast<int>(rank.nccl), rank.connections, static_cast<int>(rank.loads_late),
        static_cast<int>(rank.reaches_peers)}) {
    text += std::to_string(number) + " ";
  }
  return text + rank.device_id + "\n" + rank.host_name;
}

RankDevice decode(const std::string& text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto next = [&] {
    int value = 0;
    at = std::from_chars(at, end, value).ptr + 1;
    return value;
  };
  RankDevice rank;
  rank.host = next();
  rank.host_rank = next();
  rank.host_size = next();
  rank.device_count = next();
  rank.device = next();
  rank.nccl = next() != 0;
  rank.connections = next();
  rank.loads_late = next() != 0;
  rank.reaches_peers = next() != 0;
  const std::string rest(at, end);
  rank.device_id = rest.substr(0, rest.find('\n'));
  rank.host_name = rest.substr(rest.find('\n') + 1);
  return rank;
}

// "rank 5 (local rank 1 of host a, which shows it 2 devices)"
std::string describe(std::span<const RankDevice> ranks, std::size_t rank) {
  const RankDevice& each = ranks[rank];
  return "rank " + std::to_string(rank) + " (local rank " + std::to_string(each.host_rank) +
         " of the " + std::to_string(each.host_size) + " on host " + each.host_name +
         ", where it sees " + count(each.device_count, "device") + ")";
}

// Throws for the first rank that has no device.
void check_devices(std::span<const RankDevice> ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].device >= 0) continue;
    throw InvalidArgument("[devices] " + describe(ranks, rank) +
                          " has no device to compute on; see what nvidia-smi lists there, what "
                          "CUDA_VISIBLE_DEVICES hides, and whether the build has PENSTOCK_CUDA, or "
                          "compute on the CPU");
  }
}

// Two ranks that have the same device, as a text; empty when each has its own.
std::string shared_device(std::span<const RankDevice> ranks) {
  for (std::size_t b = 0; b < ranks.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (ranks[a].host != ranks[b].host || ranks[a].device_id != ranks[b].device_id) continue;
      return describe(ranks, b) + " would have device " + ranks[b].device_id +
             ", which is that of " + describe(ranks, a);
    }
  }
  return {};
}

std::string without_nccl(std::span<const RankDevice> ranks) {
  std::vector<int> lacking;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].nccl) lacking.push_back(static_cast<int>(rank));
  }
  return lacking.empty() ? "" : list_of(lacking);
}

// What is wrong with a rank's environment where NCCL is used, and what would not be; nothing: all
// is well.
std::string fault_of_environment(const RankDevice& rank) {
  if (rank.connections < kNeededConnections) {
    return std::string(" has ") + kConnections + " at " + std::to_string(rank.connections) +
           "; with fewer than 32 a transfer of NCCL may wait behind one that needs it done. Set it "
           "to 32";
  }
  if (rank.loads_late) {
    return std::string(" has kernels loaded when they are first started, for which the driver ") +
           "waits for all that runs: transfers of NCCL among it, which may need this rank to go "
           "on. Set " +
           kLoading + " to EAGER";
  }
  if (rank.reaches_peers) {
    return std::string(" is a thread beside other ranks, where NCCL would reach into tensors of ") +
           "their devices, which their memory does not let it. Set " + kNoReaching + " to 1";
  }
  return {};
}

void check_environment(std::span<const RankDevice> ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string fault = fault_of_environment(ranks[rank]);
    if (fault.empty()) continue;
    throw InvalidArgument("[devices] " + describe(ranks, rank) + fault +
                          " in the environment of all ranks, or call prepare_devices() at the "
                          "start of main");
  }
}

}  // namespace

void prepare_devices() {
  setenv(kConnections, std::to_string(kNeededConnections).c_str(), 0);
  setenv(kLoading, "EAGER", 0);
  setenv(kNoReaching, "1", 0);
}

int device_of_local_rank(int host_rank, int device_count) {
  return device_count > 0 ? host_rank % device_count : -1;
}

Transport choose_transport(std::span<const RankDevice> ranks, const DeviceOptions& options) {
  check_devices(ranks);
  const std::string shared = shared_device(ranks);
  if (!shared.empty() && !options.sharing) {
    throw InvalidArgument("[devices] " + shared +
                          "; start no more ranks on a host than it has devices, or let ranks share "
                          "them (\"device\": {\"sharing\": true})");
  }
  if (options.transport == Transport::kStaged) return Transport::kStaged;
  const bool asked = options.transport == Transport::kNccl;
  if (asked && !shared.empty()) {
    throw InvalidArgument("[devices] " + shared +
                          "; NCCL needs a device for each rank: leave the transport to "
                          "\"auto\" or \"staged\", or start fewer ranks on the host");
  }
  const std::string lacking = without_nccl(ranks);
  if (asked && !lacking.empty()) {
    throw tensor::Unsupported("[devices] the build of " + lacking +
                              " has no NCCL; configure it with -DPENSTOCK_NCCL=ON, which needs "
                              "NCCL's library and header, or leave the transport to \"auto\"");
  }
  if (!shared.empty() || !lacking.empty()) return Transport::kStaged;
  if (ranks.size() == 1) return Transport::kStaged;  // nothing travels
  check_environment(ranks);
  return Transport::kNccl;
}

DevicePlan plan_devices(World& world, const DeviceOptions& options) {
  const RankDevice self = describe_self(world);
  std::vector<RankDevice> ranks;
  for (const std::string& text : world.all().all_gather_text(encode(self))) {
    ranks.push_back(decode(text));
  }
  return {.device = self.device, .transport = choose_transport(ranks, options)};
}

std::unique_ptr<Communicator> make_device_communicator(
    World& world, std::unique_ptr<Communicator> host, Transport transport,
    const std::shared_ptr<tensor::Allocator>& memory, Links links) {
  if (memory->device() == tensor::kCpuDevice) return host;
  if (transport == Transport::kNccl) {
    return nccl::make_communicator(world, std::move(host), memory, links);
  }
  if (transport == Transport::kStaged) {
    using device::StagedCommunicator;
    const auto messages = world.kind() == "local" ? StagedCommunicator::Messages::kHandedOver
                                                  : StagedCommunicator::Messages::kStaged;
    return std::make_unique<StagedCommunicator>(world, std::move(host), messages, memory,
                                                tensor::cuda::make_pinned_allocator());
  }
  throw InvalidArgument(
      "[devices] how tensors travel is not decided yet; take the transport from plan_devices()");
}

}  // namespace penstock::comm
