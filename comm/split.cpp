#include "comm/split.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>

#include "tensor/error.h"

namespace penstock::comm {

SplitResult agree_on_split(Communicator& parent, int color, int key, std::int64_t id) {
  if (color < -1) {
    throw tensor::InvalidArgument("[split] a color must be 0 or more, or -1 for no group; got " +
                                  std::to_string(color));
  }
  struct Wish {
    std::int64_t color;
    std::int64_t key;
    std::int64_t id;
  };
  const std::array<std::int64_t, 3> mine{color, key, id};
  const std::vector<std::int64_t> all = parent.all_gather_wait(mine);
  std::vector<Wish> wishes;
  for (std::size_t at = 0; at < all.size(); at += 3) {
    wishes.push_back({all[at], all[at + 1], all[at + 2]});
  }
  SplitResult result;
  std::set<std::int64_t> colors;
  for (int member = 0; member < parent.size(); ++member) {
    const Wish& wish = wishes[static_cast<std::size_t>(member)];
    result.largest_id = std::max(result.largest_id, wish.id);
    if (wish.color >= 0) colors.insert(wish.color);
    if (wish.color >= 0 && wish.color == color) result.members.push_back(member);
  }
  result.groups = static_cast<int>(colors.size());
  if (color == -1) return result;
  std::stable_sort(result.members.begin(), result.members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  const auto found = std::find(result.members.begin(), result.members.end(), parent.rank());
  result.rank = static_cast<int>(found - result.members.begin());
  result.group = static_cast<int>(std::distance(colors.begin(), colors.find(color)));
  return result;
}

}  // namespace penstock::comm
