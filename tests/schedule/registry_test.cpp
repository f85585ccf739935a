#include "schedule/registry.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

TEST(Registry, MakesEachScheduleUnderItsOwnName) {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : registered_schedules()) {
    names.emplace_back(info.name);
    const auto schedule = make_schedule(
        info.name, {.ranks = 1, .micro_batches = 3, .chunks = std::max(info.chunks, 1)});
    EXPECT_EQ(schedule->name(), info.name);
    EXPECT_EQ(schedule->num_micro_batches(), 3);
    const bool trains = count(flat(*schedule), Opcode::kOptimizerStep) == 1;
    EXPECT_EQ(info.trains, trains) << info.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"1f1b", "gpipe", "gpipe_reversed", "looped_bfs",
                                             "interleaved_1f1b", "eager_1f1b", "zb_h1", "zb_h2",
                                             "zb1p", "zbv", "v_half", "v_min", "dualpipev", "train",
                                             "data_parallel", "inference", "forward_only"}));
}

TEST(Registry, NamesTheKnownSchedulesForAnUnknownOne) {
  EXPECT_EQ(error_of([] { make_schedule("1F1B", {}); }),
            "[schedule] there is no schedule named \"1F1B\"; expected one of 1f1b, gpipe, "
            "gpipe_reversed, looped_bfs, interleaved_1f1b, eager_1f1b, zb_h1, zb_h2, zb1p, zbv, "
            "v_half, v_min, dualpipev, train, data_parallel, inference, forward_only; set "
            "pipeline.schedule to one of them");
  EXPECT_THROW(schedule_info(""), ScheduleError);
}

TEST(Registry, ChecksTheArgumentsOfTheSchedule) {
  EXPECT_NE(error_of([] { make_schedule("1f1b", {.chunks = 2}); }).find("pipeline.chunks is 2"),
            std::string::npos);
  EXPECT_NE(
      error_of([] { make_schedule("data_parallel", {.ranks = 2}); }).find("pipeline.stages is 2"),
      std::string::npos);
}

TEST(Registry, MakesThePipeOfAllRanks) {
  const auto pipe = make_pipe("1f1b", {.ranks = 3, .micro_batches = 2, .rank = PipeRank{77}});
  ASSERT_EQ(pipe.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(pipe[rank]->rank(), PipeRank{rank});
  EXPECT_NE(error_of([] { make_pipe("1f1b", {.ranks = 0}); }).find("pipeline.stages is 0"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::schedule
