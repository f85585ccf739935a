// The failure scenarios on ranks as threads.
#include <atomic>

#include <gtest/gtest.h>

#include "tests/comm/failures.h"

namespace penstock::comm::testing {
namespace {

class LocalFailures : public ::testing::TestWithParam<Scenario> {};

TEST_P(LocalFailures, EndAsTheyMust) {
  for (const int ranks : {2, 3, 4}) {
    std::atomic<int> finished{0};
    run_local(ranks, {.timeout_seconds = GetParam().timeout_seconds}, [&](World& world) {
      try {
        GetParam().run(world);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << world.rank() << " of " << ranks << ": " << error.what();
      }
      ++finished;
    });
    EXPECT_EQ(finished, ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LocalFailures, ::testing::ValuesIn(scenarios()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace penstock::comm::testing
