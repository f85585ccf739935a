#include "comm/local/hub.h"

#include "comm/local/group.h"

namespace penstock::comm::local {

Hub::Hub(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
Hub::~Hub() = default;

void Hub::abort(const FailureCause& cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    try {
      cause_ = cause;
    } catch (...) {  // no memory for the text: the rank alone has to do
      cause_.rank = cause.rank;
    }
    aborted_.store(true, std::memory_order_release);
  }
  for (Rank& rank : ranks_) rank.bell.ring();
}

FailureCause Hub::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Hub::leave(int rank) {
  ranks_[static_cast<std::size_t>(rank)].left.store(true, std::memory_order_release);
  for (Rank& other : ranks_) other.bell.ring();
}

std::shared_ptr<Group> Hub::make_group(const std::vector<int>& world_ranks) {
  return std::make_shared<Group>(*this, groups_.fetch_add(1), world_ranks);
}

std::shared_ptr<Group> Hub::group_of(std::uint64_t parent, int split, int color,
                                     const std::vector<int>& world_ranks) {
  const std::lock_guard lock(mutex_);
  Forming& forming = forming_[{parent, split, color}];
  if (forming.group == nullptr) {
    forming.group = make_group(world_ranks);
    forming.missing = world_ranks.size();
  }
  std::shared_ptr<Group> group = forming.group;
  if (--forming.missing == 0) forming_.erase({parent, split, color});
  return group;
}

}  // namespace penstock::comm::local
