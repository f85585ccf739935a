// eager 1F1B, ZB-H2, V-Half and V-Min: their orders, peaks and idle time, against the figures that
// the papers give, and those of the zero-bubble repository's generators for the V schedules.
#include "schedule/list_rules.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "schedule/lowering.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"

namespace penstock::schedule {
namespace {

using Rows = RowSource (*)(const ScheduleArgs&);

struct Generator {
  const char* name;
  Rows rows;
  int chunks;
  int (*most_activations)(int ranks, int micro_batches);  // of any rank
};

constexpr Generator kGenerators[] = {
    {"eager_1f1b", eager_1f1b_rows, 1, [](int p, int m) { return std::min(m, 2 * p - 1); }},
    {"zb_h2", zb_h2_rows, 1, [](int p, int m) { return std::min(m, 2 * p - 1); }},
    {"v_half", v_half_rows, 2, [](int p, int m) { return std::min(2 * m, 2 * ((p + 2) / 2)); }},
    {"v_min", v_min_rows, 2, [](int p, int m) { return std::min(2 * m, 2 * ((p + 4) / 3)); }},
};

std::string row_text(const RowSource& source, int rank) {
  std::string text;
  for (const Cell& cell : source.row(PipeRank{rank})) text += to_text(cell) + " ";
  if (!text.empty()) text.pop_back();
  return text;
}

int peak(const Timeline& timeline) {
  int result = 0;
  for (const RankTimeline& rank : timeline.ranks) result = std::max(result, rank.peak_activations);
  return result;
}

Costs costs_of(int stages, int chunks, double backward_input, double backward_weight,
               double latency) {
  Costs costs = uniform_costs(stages, chunks, 1.0, backward_input, backward_weight);
  costs.latency = latency;
  return costs;
}

TEST(ListRules, EagerRunsTwiceAsFarAhead) {
  const RowSource rows = eager_1f1b_rows({.ranks = 3, .micro_batches = 5});
  EXPECT_EQ(row_text(rows, 0), "0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3 0B4");
  EXPECT_EQ(row_text(rows, 1), "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1B3 1B4");
  EXPECT_EQ(row_text(rows, 2), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4");
}

TEST(ListRules, EagerHidesTransfersThat1F1BWaitsFor) {
  const RowSource rows = eager_1f1b_rows({.ranks = 8, .micro_batches = 32});
  const auto streams = lower_all("eager_1f1b", rows);
  EXPECT_NEAR(simulate(streams, uniform_costs(8, 1)).makespan, 96 + 21, 1e-9);
  // 14 hops of the first micro batch's way forth and back, where 1F1B has 29.0 % of 96 idle.
  EXPECT_NEAR(simulate(streams, costs_of(8, 1, 1, 1, 0.1)).makespan, 96 + 21 + 1.4, 1e-9);
}

TEST(ListRules, ZbH2PutsWeightPartsOff) {
  const RowSource rows = zb_h2_rows({.ranks = 2, .micro_batches = 4});
  EXPECT_EQ(row_text(rows, 0), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(row_text(rows, 1), "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3");
}

TEST(ListRules, AreCompleteProvenAndWithinTheirPeaks) {
  for (const Generator& generator : kGenerators) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      // Those that search take a while each.
      const int step = generator.chunks == 1 || ranks < 4 ? 1 : ranks - 2;
      for (int m = 1; m <= 3 * ranks + 1; m += step) {
        SCOPED_TRACE(std::string(generator.name) + " P" + std::to_string(ranks) + " M" +
                     std::to_string(m));
        const RowSource rows =
            generator.rows({.ranks = ranks, .micro_batches = m, .chunks = generator.chunks});
        ASSERT_NO_THROW(check_table(make_table(rows)));
        const auto streams = lower_all(generator.name, rows);
        const Report report = verify(streams, true);
        ASSERT_TRUE(report.ok()) << report.to_text();
        const Timeline timeline =
            simulate(streams, uniform_costs(rows.map.num_stages(), generator.chunks));
        EXPECT_LE(peak(timeline), generator.most_activations(ranks, m));
      }
    }
  }
}

struct Figure {
  int ranks, micro_batches;
  double backward_input, backward_weight, latency;
  double idle[3];  // of the makespan, percent of the ideal busy time: zb_h2, v_half, v_min
};

// Rounded to one decimal.
constexpr Figure kFigures[] = {
    {2, 8, 1.0, 1.0, 0.0, {4.2, 2.1, 6.2}},    {4, 16, 1.0, 1.0, 0.0, {6.2, 5.2, 11.5}},
    {8, 32, 1.0, 1.0, 0.0, {7.3, 8.9, 14.1}},  {8, 32, 1.2, 0.8, 0.0, {7.3, 12.0, 35.0}},
    {8, 32, 1.0, 1.0, 0.1, {8.0, 13.9, 33.6}},
};

TEST(ListRules, IdleNoMoreThanPublished) {
  for (const Figure& figure : kFigures) {
    for (std::size_t i = 0; i < 3; ++i) {
      const Generator& generator = kGenerators[i + 1];
      SCOPED_TRACE(std::string(generator.name) + " P" + std::to_string(figure.ranks) + " I " +
                   std::to_string(figure.backward_input) + " latency " +
                   std::to_string(figure.latency));
      const RowSource rows = generator.rows({.ranks = figure.ranks,
                                             .micro_batches = figure.micro_batches,
                                             .chunks = generator.chunks});
      const Timeline timeline =
          simulate(lower_all(generator.name, rows),
                   costs_of(rows.map.num_stages(), generator.chunks, figure.backward_input,
                            figure.backward_weight, figure.latency));
      const double idle = 100.0 * (timeline.makespan / (3.0 * figure.micro_batches) - 1.0);
      EXPECT_LT(idle, figure.idle[i] + 0.0501);
      EXPECT_LE(peak(timeline), generator.most_activations(figure.ranks, figure.micro_batches));
    }
  }
}

TEST(ListRules, VHalfsIdleFollowsItsFormula) {
  for (const int ranks : {4, 6, 12}) {
    for (const int m : {2 * ranks, 3 * ranks}) {
      const RowSource rows = v_half_rows({.ranks = ranks, .micro_batches = m, .chunks = 2});
      const Timeline timeline = simulate(lower_all("v_half", rows), uniform_costs(2 * ranks, 2));
      EXPECT_NEAR(timeline.makespan, 3 * m + (3 * ranks - 7) / 2.0, 1e-9) << ranks << " " << m;
    }
  }
}

TEST(ListRules, ZbH2IsNeverIdleWithinItsSpan) {
  const auto idle = [](int ranks, int m, const Costs& costs) {
    const RowSource rows = zb_h2_rows({.ranks = ranks, .micro_batches = m});
    return 100.0 * simulate(lower_all("zb_h2", rows), costs).span_bubble_ratio();
  };
  EXPECT_NEAR(idle(2, 8, uniform_costs(2, 1)), 0.0, 1e-9);
  EXPECT_NEAR(idle(8, 32, uniform_costs(8, 1)), 0.0, 1e-9);
  EXPECT_NEAR(idle(8, 32, costs_of(8, 1, 1.2, 0.8, 0.0)), 4.4, 0.05);
  EXPECT_NEAR(idle(8, 32, costs_of(8, 1, 1.0, 1.0, 0.1)), 1.5, 0.05);
}

TEST(ListRules, LargePipesKeepThePlan) {
  // Above a million passes: 64 x 2,700 x 6.
  const RowSource rows = v_half_rows({.ranks = 64, .micro_batches = 2700, .chunks = 2});
  // On rank 63, F0 comes in slot 126 and every 6 slots, and I1 in slot 320: after 33 micro batches.
  const Row row = rows.row(PipeRank{63});
  EXPECT_EQ(to_text(row[65]), "64F32");
  EXPECT_EQ(to_text(row[66]), "64I0");
  EXPECT_EQ(to_text(row[67]), "64W0");
  EXPECT_EQ(to_text(row[68]), "63I0");
  EXPECT_NO_THROW(check_table(make_table(rows)));
}

TEST(ListRules, GiveTheSameRowsEachTime) {
  for (const Generator& generator : kGenerators) {
    const ScheduleArgs args{.ranks = 4, .micro_batches = 9, .chunks = generator.chunks};
    EXPECT_EQ(hash(make_table(generator.rows(args))), hash(make_table(generator.rows(args))))
        << generator.name;
  }
}

TEST(ListRules, RefuseOtherShapes) {
  EXPECT_THROW(zb_h2_rows({.ranks = 2, .micro_batches = 4, .chunks = 2}), ScheduleError);
  EXPECT_THROW(eager_1f1b_rows({.ranks = 0, .micro_batches = 4}), ScheduleError);
  EXPECT_THROW(v_half_rows({.ranks = 2, .micro_batches = 4, .chunks = 1}), ScheduleError);
  EXPECT_THROW(v_min_rows({.ranks = 2, .micro_batches = 0, .chunks = 2}), ScheduleError);
}

}  // namespace
}  // namespace penstock::schedule
