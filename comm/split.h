// The agreement behind Communicator::split, for the backends.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace penstock::comm {

struct SplitResult {
  std::vector<int> members;     // ranks of the parent, in the new order; empty for color -1
  int rank = -1;                // this member's place among them
  int group = -1;               // which of the new groups it is, in the order of their colors
  int groups = 0;               // how many there are
  std::int64_t largest_id = 0;  // of the ids that the members gave
};

// Collective, and waits. Each member may give an id, to agree on the largest. Throws
// InvalidArgument for a color below -1.
SplitResult agree_on_split(Communicator& parent, int color, int key, std::int64_t id = 0);

}  // namespace penstock::comm
