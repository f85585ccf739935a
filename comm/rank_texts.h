// What ranks say, put together for one message.
#pragma once

#include <span>
#include <string>

namespace penstock::comm {

// "rank 1", "ranks 0, 2".
std::string list_of(std::span<const int> ranks);

// One text per rank, empty where a rank has nothing to say:
// "ranks 0, 2: text; rank 1: other text", or "all ranks: text".
std::string by_rank(std::span<const std::string> texts);

}  // namespace penstock::comm
