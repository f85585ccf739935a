// Hub: what the ranks of one local world share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "comm/error.h"
#include "comm/local/bell.h"

namespace penstock::comm::local {

class Group;

class Hub {
 public:
  explicit Hub(int ranks);
  ~Hub();

  int size() const { return static_cast<int>(ranks_.size()); }
  Bell& bell(int rank) { return ranks_[static_cast<std::size_t>(rank)].bell; }

  // Keeps the first cause and wakes everybody.
  void abort(const FailureCause& cause) noexcept;
  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  // The first.
  FailureCause cause() const;

  // The rank's function has returned: nothing will come from it any more.
  void leave(int rank);
  bool has_left(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].left.load(std::memory_order_acquire);
  }

  // A new group; the caller shares it with its members.
  std::shared_ptr<Group> make_group(const std::vector<int>& world_ranks);
  // The group that the members of split number `split` of group `parent` with this color form; each
  // member asks once.
  std::shared_ptr<Group> group_of(std::uint64_t parent, int split, int color,
                                  const std::vector<int>& world_ranks);

  // Guards Storage::charge, which two receivers of one storage may want at once.
  std::mutex& charge_mutex() { return charge_mutex_; }

 private:
  struct Rank {
    Bell bell;
    std::atomic<bool> left{false};
  };
  struct Forming {
    std::shared_ptr<Group> group;
    std::size_t missing = 0;
  };

  std::vector<Rank> ranks_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  // guards cause_ and forming_
  FailureCause cause_;
  std::map<std::tuple<std::uint64_t, int, int>, Forming> forming_;
  std::atomic<std::uint64_t> groups_{0};
  std::mutex charge_mutex_;
};

}  // namespace penstock::comm::local
