// The list scheduler under random maps, costs, limits and policies: its orders are complete, keep
// the limits, never lock, and take as long as the simulator says.
#include "schedule/list_scheduler.h"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "schedule/lowering.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"

namespace penstock::schedule {
namespace {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int below(int count) { return static_cast<int>(engine_() % static_cast<unsigned>(count)); }
  double between(double low, double high) { return low + (high - low) * below(1001) / 1000.0; }

  StageMap map() {
    const int ranks = 1 + below(4);
    std::vector<std::int32_t> owners;
    for (int rank = 0; rank < ranks; ++rank) owners.push_back(rank);
    for (int more = below(8); more > 0; --more) owners.push_back(below(ranks));
    std::ranges::shuffle(owners, engine_);
    return StageMap(owners);
  }

  Costs costs(int stages) {
    Costs costs = uniform_costs(stages, 1);
    for (StageCosts& stage : costs.stages) {
      stage = {between(0.5, 2), between(0.5, 2), between(0, 2), between(0.5, 3), between(0, 2)};
    }
    costs.latency = between(0, 1);
    costs.seconds_per_byte = between(0, 1);
    return costs;
  }

  ListProblem problem() {
    const StageMap stage_map = map();
    ListProblem problem{stage_map, 1 + below(9), costs(stage_map.num_stages()), below(2) == 0, {}};
    const int kind = below(4);
    for (int rank = 0; rank < stage_map.num_ranks(); ++rank) {
      const PipeRank id{rank};
      if (kind & 1) problem.limit.activations.push_back(stage_map.num_chunks(id) + below(4));
      if (kind & 2) {
        problem.limit.bytes.push_back(least_bytes(stage_map, problem.costs, id) + between(0, 6));
      }
    }
    return problem;
  }

  ListPolicy policy(const ListScheduler& scheduler) {
    ListPolicy policy;
    for (int i = 0; i < scheduler.num_passes(); ++i) policy.urgency.push_back(below(50));
    if (below(2) == 0) policy.patience = between(0, 2);
    policy.from_the_end = below(2) == 0;
    for (int s = 0; s < scheduler.problem().map.num_stages(); ++s) {
      policy.stage_limit.push_back(1 + below(6));
    }
    if (below(2) == 0) policy.stage_limit.clear();
    return policy;
  }

 private:
  std::mt19937 engine_;
};

TEST(ListScheduler, MakesOrdersThatKeepTheLimitsAndTheSimulatorsTimes) {
  Random random(1);
  int limited = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const ListScheduler scheduler(random.problem());
    const ListProblem& problem = scheduler.problem();
    const TimedOrder order = scheduler.run(random.policy(scheduler));
    const Table table = scheduler.table_of(order);
    ASSERT_NO_THROW(check_table(table));
    const auto streams = lower_all("test", source_of(table));
    const Report report = verify(streams, true);
    ASSERT_TRUE(report.ok()) << report.to_text();
    const Timeline timeline = simulate(streams, problem.costs);
    EXPECT_NEAR(timeline.makespan, order.makespan, 1e-9 * order.makespan);
    EXPECT_GE(order.makespan, scheduler.least_makespan() * (1 - 1e-9));
    for (int rank = 0; rank < problem.map.num_ranks(); ++rank) {
      const RankTimeline& of_rank = timeline.ranks[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(problem.limit.allows(PipeRank{rank}, of_rank.peak_activations,
                                       of_rank.peak_activation_bytes));
    }
    limited += problem.limit.none() ? 0 : 1;
  }
  EXPECT_GT(limited, 200);  // so that limits were tried at all
}

std::string row_text(const ListScheduler& scheduler, const ListPolicy& policy, std::size_t rank) {
  const Table table = scheduler.table_of(scheduler.run(policy));
  std::string result;
  for (const Cell& cell : table.rows[rank]) result += to_text(cell) + " ";
  return result;
}

TEST(ListScheduler, TakesTheMostUrgentPass) {
  // One rank, two stages, two micro batches.
  const ListScheduler scheduler(
      {StageMap::loop(1, 2), 2, uniform_costs(2, 1), false, MemoryLimit{}});
  ListPolicy policy;
  policy.urgency = {0, 0, 0, 0, 5, 6, 5, 6};  // F of both stages, then B
  EXPECT_EQ(row_text(scheduler, policy, 0), "0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1 ");
  policy.urgency = {3, 4, 3, 4, 0, 0, 0, 0};
  EXPECT_EQ(row_text(scheduler, policy, 0), "0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1 ");
}

TEST(ListScheduler, WaitsForAnUrgentInputWhenPatient) {
  // Rank 1 is free at 1 + 0.5, when the next input for it comes; its own weight part is ready at 3.
  const Costs costs = [] {
    Costs result = uniform_costs(2, 1, 1.0, 1.0, 1.0);
    result.stages[0].forward = 2.5;
    return result;
  }();
  const ListScheduler scheduler({StageMap::loop(2, 1), 2, costs, true, MemoryLimit{}});
  ListPolicy policy;
  for (const double urgency : {0.0, 0.0, 1.0, 1.0, 2.0, 2.0}) {  // F, I and W of stage 0 and 1
    policy.urgency.insert(policy.urgency.end(), 2, urgency);
  }
  // F0 ends at 3.5, I0 at 4.5; the next F can start at 5, but W0 is there and takes until 5.5.
  EXPECT_EQ(row_text(scheduler, policy, 1), "1F0 1I0 1W0 1F1 1I1 1W1 ");
  policy.patience = 0.6;
  EXPECT_EQ(row_text(scheduler, policy, 1), "1F0 1I0 1F1 1I1 1W0 1W1 ");
}

TEST(ListScheduler, ReadsTablesBack) {
  const ListScheduler scheduler({StageMap::v(2, 2), 3, uniform_costs(4, 2), true, MemoryLimit{}});
  ListPolicy policy;
  policy.urgency.assign(static_cast<std::size_t>(scheduler.num_passes()), 0.0);
  const TimedOrder order = scheduler.run(policy);
  const TimedOrder back = scheduler.order_of(scheduler.table_of(order));
  EXPECT_EQ(back.rows, order.rows);
  EXPECT_EQ(back.start, order.start);
}

TEST(ListScheduler, RefusesALimitBelowOneMicroBatch) {
  const auto make = [](MemoryLimit limit) {
    ListScheduler({StageMap::v(2, 2), 3, uniform_costs(4, 2), true, std::move(limit)});
  };
  EXPECT_NO_THROW(make({{2, 2}, {2.0, 2.0}}));
  EXPECT_THROW(make({{2, 1}, {}}), ScheduleError);
  EXPECT_THROW(make({{}, {1.9, 2.0}}), ScheduleError);
}

TEST(ListScheduler, RefusesAnOrderThatLocks) {
  const ListScheduler scheduler(
      {StageMap::loop(2, 1), 1, uniform_costs(2, 1), false, MemoryLimit{}});
  EXPECT_NO_THROW(scheduler.timed({{0, 2}, {1, 3}}));
  EXPECT_THROW(scheduler.timed({{2, 0}, {1, 3}}), ScheduleError);
}

}  // namespace
}  // namespace penstock::schedule
