// Every combination of precision, ZeRO, grid, schedule and recomputation trains as one rank does in
// fp32.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "tests/engine/mixed_runs.h"

namespace penstock::testing {
namespace {

constexpr int kSteps = 2;

double tolerance(const std::string& precision) {
  static const std::map<std::string, double> tolerances = {
      {"fp32", 1e-5}, {"fp16", 5e-3}, {"bf16", 2e-2}};
  return tolerances.at(precision);
}

std::unique_ptr<model::DataSource> tokens() {
  return token_samples(64);
}

// All grids of up to two ranks on each axis, both schedules, with and without recomputation.
std::vector<MixedRun> runs_of(const std::string& precision, int zero) {
  std::vector<MixedRun> runs;
  for (int bits = 0; bits < 8; ++bits) {
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      for (const int recompute : {0, 2}) {
        runs.push_back({.precision = precision,
                        .zero = zero,
                        .pipe = 1 + (bits & 1),
                        .data = 1 + (bits >> 1 & 1),
                        .model = 1 + (bits >> 2 & 1),
                        .schedule = schedule,
                        .recompute = recompute});
      }
    }
  }
  return runs;
}

class Combinations : public ::testing::TestWithParam<std::string> {};

TEST_P(Combinations, TrainAsOneRankDoesInFp32) {
  const MixedOutcome wanted = train(small_gpt(), tokens, {}, kSteps)[0];
  ASSERT_NE(wanted.losses[0], wanted.losses[1]);
  int ran = 0;
  for (const int zero : {0, 1, 2}) {
    for (const MixedRun& run : runs_of(GetParam(), zero)) {
      SCOPED_TRACE(run.text());
      MixedRun with_scale = run;
      // So that no step is lost to the search for the scale.
      if (run.precision == "fp16") with_scale.more = R"({"fp16": {"initial_scale_power": 10}})";
      const MixedOutcome outcome = train(small_gpt(), tokens, with_scale, kSteps)[0];
      for (int step = 0; step < kSteps; ++step) {
        const auto at = static_cast<std::size_t>(step);
        EXPECT_FALSE(outcome.skipped[at]);
        EXPECT_NEAR(outcome.losses[at], wanted.losses[at],
                    tolerance(run.precision) * wanted.losses[at]);
        if (run.precision != "fp32") {
          EXPECT_NE(outcome.losses[at], wanted.losses[at]);
        }
      }
      ++ran;
    }
  }
  EXPECT_EQ(ran, 96);
}

INSTANTIATE_TEST_SUITE_P(All, Combinations, ::testing::Values("fp32", "bf16", "fp16"),
                         [](const auto& precision) { return precision.param; });

}  // namespace
}  // namespace penstock::testing
