// Stage maps against the examples that PyTorch documents, and what they refuse.
#include "schedule/stage_map.h"

#include <gtest/gtest.h>

#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

TEST(StageMap, LoopGoesRound) {
  EXPECT_EQ(to_text(StageMap::loop(4, 2)), "0,1,2,3,0,1,2,3");
  EXPECT_EQ(to_text(StageMap::loop(1, 3)), "0,0,0");
}

TEST(StageMap, VTurnsAtTheEnds) {
  EXPECT_EQ(to_text(StageMap::v(2, 2)), "0,1,1,0");
  EXPECT_EQ(to_text(StageMap::v(4, 3)), "0,1,2,3,3,2,1,0,0,1,2,3");
  EXPECT_EQ(to_text(StageMap::v(4, 4)), "0,1,2,3,3,2,1,0,0,1,2,3,3,2,1,0");
}

TEST(StageMap, ChunksAreARanksStagesInOrder) {
  constexpr std::int32_t kOwners[] = {1, 0, 1, 2, 1};
  const StageMap map(kOwners);
  EXPECT_EQ(map.num_ranks(), 3);
  EXPECT_EQ(map.num_stages(), 5);
  EXPECT_EQ(map.num_chunks(PipeRank{1}), 3);
  EXPECT_EQ(map.num_chunks(PipeRank{2}), 1);
  EXPECT_EQ(map.stage_of(PipeRank{1}, ChunkId{1}), StageId{2});
  for (int stage = 0; stage < map.num_stages(); ++stage) {
    const StageId id{stage};
    EXPECT_EQ(map.stage_of(map.rank_of(id), map.chunk_of(id)), id);
  }
}

TEST(StageMap, EqualWhenTheOwnersAre) {
  constexpr std::int32_t kOwners[] = {0, 1};
  EXPECT_EQ(StageMap(kOwners), StageMap::loop(2, 1));
  EXPECT_EQ(StageMap(kOwners), StageMap::v(2, 1));
  EXPECT_NE(StageMap::loop(2, 2), StageMap::v(2, 2));
}

TEST(StageMap, RefusesWhatIsNoMap) {
  constexpr std::int32_t kGap[] = {0, 2, 2};
  constexpr std::int32_t kNegative[] = {0, -1};
  constexpr std::int32_t kFar[] = {0, 7};
  EXPECT_EQ(error_of([&] { StageMap{kGap}; }),
            "[stage map] pipeline.stage_map gives rank 1 no stage; expected every rank from 0 to 2 "
            "to own one");
  EXPECT_EQ(error_of([&] { StageMap{kNegative}; }),
            "[stage map] pipeline.stage_map names rank -1; expected ranks from 0, fewer than the 2 "
            "stages");
  EXPECT_THROW(StageMap{kFar}, ScheduleError);
  EXPECT_THROW(StageMap{std::span<const std::int32_t>()}, ScheduleError);
  EXPECT_THROW(StageMap::loop(0, 1), ScheduleError);
  EXPECT_THROW(StageMap::v(1 << 20, 1 << 20), ScheduleError);
  EXPECT_THROW(StageMap::loop(2, 1).rank_of(StageId{2}), ScheduleError);
  EXPECT_THROW(StageMap::loop(2, 1).stage_of(PipeRank{0}, ChunkId{1}), ScheduleError);
  EXPECT_THROW(StageMap::loop(2, 1).stages_of(PipeRank{}), ScheduleError);
}

}  // namespace
}  // namespace penstock::schedule
