// How the tags of the world's communicators are shared out. A tag holds the number of a group, and
// what tells the group's transfers apart.
#pragma once

#include <cstdint>

#include "comm/message.h"

namespace penstock::comm::mpi {

// Collectives of one group that may be under way at once; their tags come round after that.
inline constexpr std::int64_t kCollectiveWindow = 1024;
inline constexpr std::int64_t kTagsPerGroup = 2 * kCollectiveWindow;

// Of headers; bodies use the next. Messages and collectives have different MPI communicators.
inline int message_tag(std::int64_t group, ChannelKind kind) {
  return static_cast<int>(group * kTagsPerGroup + 2 * static_cast<std::int64_t>(kind));
}

// Of greetings; contributions use the next.
inline int collective_tag(std::int64_t group, std::int64_t number) {
  return static_cast<int>(group * kTagsPerGroup + 2 * (number % kCollectiveWindow));
}

// Groups that an MPI with this largest tag can have.
inline std::int64_t max_groups(std::int64_t largest_tag) {
  return (largest_tag + 1) / kTagsPerGroup;
}

}  // namespace penstock::comm::mpi
