// ZeRO's shares: which part of each piece of weights a replica updates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/precision_config.h"
#include "model/stage.h"

namespace penstock::engine {

// Of `count` replicas that share out the work, this is number `index`.
struct Share {
  int index = 0;
  int count = 1;
};

inline Share share_of(const ZeroConfig& zero, int replica, int replicas) {
  return zero.stage > 0 ? Share{replica, replicas} : Share{};
}

// Elements [begin, end) of a piece; some may be padding.
struct OwnedRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

inline OwnedRange owned_range(const model::FlatWeights& weights, const Share& share) {
  const std::int64_t each = weights.elements() / share.count;
  return {share.index * each, (share.index + 1) * each};
}

// What a share has of one parameter: elements [begin, end) of this rank's tensor of it; empty when
// none. `at`: where they begin in the piece.
struct OwnedPart {
  std::int64_t begin = 0, end = 0, at = 0;
  std::int64_t size() const { return end - begin; }
};

inline OwnedPart owned_part(const model::FlatWeights::Member& member, std::int64_t numel,
                            const OwnedRange& range) {
  const std::int64_t begin = std::max(range.begin, member.begin);
  const std::int64_t end = std::max(begin, std::min(range.end, member.begin + numel));
  return {begin - member.begin, end - member.begin, begin};
}

}  // namespace penstock::engine
