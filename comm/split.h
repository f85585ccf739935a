// The agreement behind Communicator::split, for the backends.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace penstock::comm {

struct SplitResult {
  std::vector<int> members;  // ranks of the parent, in the new order; empty for color -1
  int rank = -1;             // this member's place among them
};

// Collective, and waits. Throws InvalidArgument for a color below -1.
SplitResult agree_on_split(Communicator& parent, int color, int key);

}  // namespace penstock::comm
