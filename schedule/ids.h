// Ids of ranks, stages, chunks, micro batches and buffers as distinct types, so that one cannot be
// passed where another is meant.
#pragma once

#include <compare>
#include <cstdint>

namespace penstock::schedule {

// An index that counts from 0. A default-constructed id is "none": it names nothing.
template <class Tag>
struct Id {
  static constexpr std::int32_t kNone = -1;

  constexpr Id() = default;
  explicit constexpr Id(std::int32_t index) : value(index) {}

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy takes the 0 that <=> is compared to for one.
  friend constexpr auto operator<=>(const Id&, const Id&) = default;

  std::int32_t value = kNone;
};

// A position along the pipe axis of the grid; not a rank of the world.
using PipeRank = Id<struct PipeRankTag>;
// One of the consecutive parts that the model is cut into; global over the pipe.
using StageId = Id<struct StageTag>;
// One of the stages that a rank owns; local to the rank.
using ChunkId = Id<struct ChunkTag>;
// One of the micro batches of a step.
using MicroBatchId = Id<struct MicroBatchTag>;
// One of the pipe buffers of a chunk.
using BufferId = Id<struct BufferTag>;

}  // namespace penstock::schedule
