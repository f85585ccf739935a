// Connecting the members of a group by NCCL, in one order.
#pragma once

#include <vector>

#include <nccl.h>

#include "comm/communicator.h"
#include "comm/device/devices.h"

namespace penstock::comm::nccl {

// From one member to another.
struct Channel {
  int from = 0;
  int to = 0;
  ChannelKind kind = ChannelKind::kActivation;
};

// The channels of a group of `size`, in the order in which all members connect them.
std::vector<Channel> channels_of(Links links, int size);

// One for each channel, then one for the group; the same on all members. Collective, and waits.
std::vector<ncclUniqueId> agree_on_ids(Communicator& host, const std::vector<Channel>& channels);

}  // namespace penstock::comm::nccl
