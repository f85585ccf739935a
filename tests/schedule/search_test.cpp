// The search: never worse than a built-in schedule, within the memory limit, and as good as the
// published figures where there are some.
#include "schedule/search.h"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "schedule/list_rules.h"
#include "schedule/lowering.h"
#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"

namespace penstock::schedule {
namespace {

Timeline timeline_of(const Table& table, const Costs& costs) {
  return simulate(lower_all("search", source_of(table)), costs);
}

int peak(const SearchCandidate& candidate) {
  return std::ranges::max(candidate.peak_activations);
}

const SearchCandidate& find(const SearchResult& result, const std::string& name) {
  const auto found = std::ranges::find(result.candidates, name, &SearchCandidate::name);
  if (found == result.candidates.end()) throw std::runtime_error("no candidate " + name);
  return *found;
}

Costs random_costs(int stages, std::mt19937& random) {
  const auto between = [&random](double low, double high) {
    return low + (high - low) * static_cast<double>(random() % 1001) / 1000.0;
  };
  Costs costs = uniform_costs(stages, 1);
  for (StageCosts& stage : costs.stages) {
    stage = {between(0.5, 1.5), between(0.5, 1.5), between(0.2, 1.5), between(0.5, 2), 1.0};
  }
  costs.latency = between(0, 0.2);
  costs.seconds_per_byte = between(0, 0.1);
  return costs;
}

// What the test itself gets for every schedule that the search has to try.
void expect_no_worse_than_built_in(const SearchRequest& request, const SearchResult& result) {
  const Timeline timeline = timeline_of(result.table, request.costs);
  int tried = 0;
  for (const StageMap& map : request.maps) {
    for (const ScheduleInfo& info : registered_schedules()) {
      if (!info.trains || info.rows == nullptr) continue;
      std::vector<std::unique_ptr<Schedule>> pipe;
      try {
        pipe = make_pipe(info.name, {.ranks = map.num_ranks(),
                                     .micro_batches = request.micro_batches,
                                     .chunks = map.num_stages() / map.num_ranks(),
                                     .stage_map = map});
      } catch (const ScheduleError&) {
        continue;
      }
      const Timeline other = simulate(pipe, request.costs);
      bool fits = true;
      for (std::size_t rank = 0; rank < other.ranks.size(); ++rank) {
        fits = fits && request.limit.allows(PipeRank{static_cast<std::int32_t>(rank)},
                                            other.ranks[rank].peak_activations,
                                            other.ranks[rank].peak_activation_bytes);
      }
      if (!fits) continue;
      ++tried;
      EXPECT_LE(timeline.makespan, other.makespan * (1 + 1e-9)) << info.name;
    }
  }
  const auto fitting = std::ranges::count(result.candidates, true, &SearchCandidate::fits);
  EXPECT_EQ(fitting, tried + 1);  // and what the search found
}

TEST(Search, IsNoWorseThanAnyBuiltInScheduleThatFits) {
  std::mt19937 random(7);
  for (const int ranks : {1, 2, 4}) {
    for (const int chunks : {1, 2, 3}) {
      for (const int micro_batches : {1, ranks, 2 * ranks + 1}) {
        SearchRequest request{.maps = usual_maps(ranks, chunks),
                              .micro_batches = micro_batches,
                              .costs = random_costs(ranks * chunks, random),
                              .effort = 50'000};
        if (random() % 2 == 0) {
          const int most = chunks + static_cast<int>(random() % static_cast<unsigned>(2 * ranks));
          request.limit.activations.assign(static_cast<std::size_t>(ranks), most);
        }
        SCOPED_TRACE(std::to_string(ranks) + " x " + std::to_string(chunks) + " M" +
                     std::to_string(micro_batches));
        const SearchResult result = search(request);
        ASSERT_NO_THROW(check_table(result.table));
        ASSERT_TRUE(verify(lower_all("search", source_of(result.table)), true).ok());
        EXPECT_TRUE(result.best().fits);
        for (const int held : result.best().peak_activations) {
          EXPECT_TRUE(request.limit.none() || held <= request.limit.activations.front());
        }
        EXPECT_EQ(result.best().makespan, timeline_of(result.table, request.costs).makespan);
        expect_no_worse_than_built_in(request, result);
      }
    }
  }
}

TEST(Search, ReachesThePublishedFiguresOnTheirMemory) {
  struct Figure {
    int ranks, activations;
    double backward_input, backward_weight, latency, idle;
  };
  // V-Half, then V-Min, of 4 micro batches per rank: percent of the ideal busy time.
  constexpr Figure kFigures[] = {{4, 6, 1.0, 1.0, 0.0, 5.2},   {8, 10, 1.0, 1.0, 0.0, 8.9},
                                 {8, 10, 1.2, 0.8, 0.0, 12.0}, {8, 10, 1.0, 1.0, 0.1, 13.9},
                                 {4, 4, 1.0, 1.0, 0.0, 11.5},  {8, 8, 1.0, 1.0, 0.0, 14.1},
                                 {8, 8, 1.2, 0.8, 0.0, 35.0},  {8, 8, 1.0, 1.0, 0.1, 33.6}};
  for (const Figure& figure : kFigures) {
    const int ranks = figure.ranks;
    SearchRequest request{
        .maps = {StageMap::v(ranks, 2)},
        .micro_batches = 4 * ranks,
        .costs = uniform_costs(2 * ranks, 2, 1.0, figure.backward_input, figure.backward_weight),
        .limit = {.activations =
                      std::vector<int>(static_cast<std::size_t>(ranks), figure.activations)},
        .effort = 1'000'000};
    request.costs.latency = figure.latency;
    const SearchResult result = search(request);
    const double idle = 100.0 * (result.best().makespan / (3.0 * 4 * ranks) - 1.0);
    EXPECT_LT(idle, figure.idle + 0.0501) << ranks << " ranks, " << figure.activations;
    EXPECT_LE(peak(result.best()), figure.activations);
  }
}

TEST(Search, BeatsTheBuiltInSchedulesWhereStagesDiffer) {
  // The last stage, with the loss, takes longer; weight parts are cheap.
  SearchRequest request{
      .maps = usual_maps(4, 2), .micro_batches = 12, .costs = uniform_costs(8, 2, 1.0, 1.3, 0.6)};
  request.costs.stages.back().forward *= 1.5;
  request.costs.stages.front().backward_weight *= 2.0;
  request.costs.latency = 0.05;
  request.effort = 1'000'000;
  const SearchResult result = search(request);
  EXPECT_EQ(result.best().name, "search");
  for (const SearchCandidate& candidate : result.candidates) {
    if (candidate.name == "search") continue;
    EXPECT_LT(result.best().makespan, candidate.makespan * 0.999) << candidate.name;
  }
}

TEST(Search, TakesABuiltInScheduleThatNothingBeats) {
  const SearchResult result = search({.maps = usual_maps(4, 1),
                                      .micro_batches = 8,
                                      .costs = uniform_costs(4, 1),
                                      .effort = 100'000});
  // (P-1) F of idle time is the least there is: the last rank starts that late.
  EXPECT_NEAR(result.best().makespan, 24 + 3, 1e-9);
  EXPECT_NE(result.best().name, "search");
}

TEST(Search, MayLookAmongBuiltInSchedulesAlone) {
  const SearchResult result = search({.maps = usual_maps(2, 2),
                                      .micro_batches = 8,
                                      .costs = uniform_costs(4, 2),
                                      .improve = false});
  EXPECT_EQ(std::ranges::count(result.candidates, "search", &SearchCandidate::name), 0);
  EXPECT_GT(result.candidates.size(), 5u);
  EXPECT_EQ(find(result, "zbv").makespan, 24.5);
  EXPECT_EQ(result.best().makespan, 24.5);
}

TEST(Search, KeepsALimitInBytes) {
  SearchRequest request{.maps = usual_maps(4, 2),
                        .micro_batches = 8,
                        .costs = uniform_costs(8, 2),
                        .limit = {.bytes = {60, 60, 60, 60}},
                        .effort = 200'000};
  for (StageCosts& stage : request.costs.stages) stage.activation_bytes = 10;
  request.costs.stages.front().activation_bytes = 20;
  const SearchResult result = search(request);
  for (const double bytes : result.best().peak_activation_bytes) EXPECT_LE(bytes, 60);
  EXPECT_FALSE(find(result, "gpipe").fits);
}

std::string message_of(const SearchRequest& request) {
  try {
    search(request);
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "";
}

TEST(Search, SaysTheLeastThatIsNeededWhenNothingFits) {
  SearchRequest request{.maps = usual_maps(2, 2),
                        .micro_batches = 8,
                        .costs = uniform_costs(4, 2),
                        .limit = {.activations = {1, 4}}};
  EXPECT_EQ(message_of(request),
            "[search] no schedule fits the memory limit: one micro batch at a time comes nearest "
            "and needs 2 activation(s) on rank 0; the limit there is 1 activation(s); raise it, or "
            "make the stages of that rank smaller");
  request.limit.activations = {3, 3};
  EXPECT_EQ(message_of(request), "");
  request.improve = false;
  EXPECT_NE(message_of(request).find("needs 4 activation(s) on rank"), std::string::npos)
      << message_of(request);
}

TEST(Search, RefusesRequestsThatAreNone) {
  const SearchRequest good{
      .maps = usual_maps(2, 1), .micro_batches = 2, .costs = uniform_costs(2, 1), .effort = 1'000};
  EXPECT_NO_THROW(search(good));
  SearchRequest bad = good;
  bad.maps.clear();
  EXPECT_THROW(search(bad), ScheduleError);
  bad = good;
  bad.maps.push_back(StageMap::loop(2, 2));
  EXPECT_THROW(search(bad), ScheduleError);
  bad = good;
  bad.micro_batches = 0;
  EXPECT_THROW(search(bad), ScheduleError);
  bad = good;
  bad.costs = uniform_costs(3, 1);
  EXPECT_THROW(search(bad), ScheduleError);
  bad = good;
  bad.limit.activations = {1};
  EXPECT_THROW(search(bad), ScheduleError);
  bad = good;
  bad.built_in = bad.improve = false;
  EXPECT_THROW(search(bad), ScheduleError);
}

TEST(Search, GivesTheSameOrderEachTime) {
  std::mt19937 random(3);
  const SearchRequest request{.maps = usual_maps(3, 2),
                              .micro_batches = 7,
                              .costs = random_costs(6, random),
                              .effort = 100'000};
  EXPECT_EQ(hash(search(request).table), hash(search(request).table));
}

}  // namespace
}  // namespace penstock::schedule
