#include "comm/split.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tensor/error.h"

namespace penstock::comm {

SplitResult agree_on_split(Communicator& parent, int color, int key) {
  if (color < -1) {
    throw tensor::InvalidArgument("[split] a color must be 0 or more, or -1 for no group; got " +
                                  std::to_string(color));
  }
  const std::array<std::int64_t, 2> mine{color, key};
  const std::vector<std::int64_t> all = parent.all_gather_wait(mine);
  SplitResult result;
  if (color == -1) return result;
  const auto key_of = [&all](int member) { return all[static_cast<std::size_t>(member) * 2 + 1]; };
  for (int member = 0; member < parent.size(); ++member) {
    if (all[static_cast<std::size_t>(member) * 2] == color) result.members.push_back(member);
  }
  std::stable_sort(result.members.begin(), result.members.end(),
                   [&](int a, int b) { return key_of(a) < key_of(b); });
  const auto found = std::find(result.members.begin(), result.members.end(), parent.rank());
  result.rank = static_cast<int>(found - result.members.begin());
  return result;
}

}  // namespace penstock::comm
