#include "engine/lr_schedule.h"

#include <cmath>

#include "config_support.h"

namespace penstock::engine {
namespace {

using nlohmann::json;
using test::error_of;

void expect_near_relative(double got, double expected) {
  EXPECT_LE(std::abs(got - expected), 1e-12 * std::abs(expected)) << got << " " << expected;
}

Config config_with(const json& type, const json& params, const std::string& optimizer = "Adam",
                   double lr = 1e-3) {
  const json root = {{"optimizer", {{"type", optimizer}, {"params", {{"lr", lr}}}}},
                     {"scheduler", {{"type", type}, {"params", params}}}};
  return parse_config(root.dump(), "test.json");
}

std::unique_ptr<LrSchedule> schedule_with(const json& type, const json& params, double lr = 1e-3) {
  const double lrs[] = {lr};
  return make_lr_schedule(config_with(type, params).scheduler, lrs, true);
}

// A golden row's values; update n uses index n - 1.
void expect_row(const json& row) {
  const std::vector<double> lrs = row["optimizer_lr"];
  const auto schedule =
      make_lr_schedule(config_with(row["type"], row["params"]).scheduler, lrs, true);
  ASSERT_EQ(schedule->num_groups(), lrs.size());
  for (std::size_t n = 1; n <= row["lr_after_step_call"].size(); ++n) {
    SCOPED_TRACE("update " + std::to_string(n));
    for (std::size_t group = 0; group < lrs.size(); ++group) {
      expect_near_relative(schedule->lr(group), row["lr_after_step_call"][n - 1][group]);
    }
    if (row.contains("betas_after_step_call")) {
      const Betas betas = schedule->betas().value_or(Betas{});
      expect_near_relative(betas.beta1, row["betas_after_step_call"][n - 1][0]);
      expect_near_relative(betas.beta2, row["betas_after_step_call"][n - 1][1]);
    } else {
      EXPECT_FALSE(schedule->betas());
    }
    schedule->advance();
  }
}

TEST(LrSchedule, GoldenRowsAgree) {
  std::size_t agreed = 0;
  std::size_t refused = 0;
  for (const auto& row : test::golden_rows("deepspeed_lr.jsonl")) {
    SCOPED_TRACE(row["type"].dump() + row["params"].dump());
    // DeepSpeed takes an unknown warmup_type as log; here it is an error.
    const bool bogus = row["params"].value("warmup_type", "log") == "bogus";
    if (row.contains("error") || bogus) {
      EXPECT_THROW(config_with(row["type"], row["params"]), ConfigError);
      ++refused;
    } else {
      expect_row(row);
      ++agreed;
    }
  }
  EXPECT_EQ(agreed, 16u);
  EXPECT_EQ(refused, 8u);
}

TEST(LrSchedule, WithoutSchedulerEachGroupKeepsItsOwn) {
  const double lrs[] = {0.1, 0.2};
  const auto schedule = make_lr_schedule(SchedulerConfig(), lrs, true);
  EXPECT_EQ(schedule->lr_at(0, 0), 0.1);
  EXPECT_EQ(schedule->lr_at(1, 1'000'000), 0.2);
  EXPECT_FALSE(schedule->betas());
}

TEST(LrSchedule, ListsHaveOneValuePerGroup) {
  OneCycleConfig cycle;
  cycle.min_lr = std::vector<double>{0.1, 0.2};
  cycle.max_lr = std::vector<double>{1.0, 2.0};
  cycle.first_step_size = 4;
  const double two[] = {0.0, 0.0};
  const auto schedule = make_lr_schedule(cycle, two, true);
  EXPECT_DOUBLE_EQ(schedule->lr_at(0, 3), 1.0);
  EXPECT_DOUBLE_EQ(schedule->lr_at(1, 3), 2.0);
  EXPECT_DOUBLE_EQ(schedule->lr_at(0, 7), 0.1);
  EXPECT_DOUBLE_EQ(schedule->lr_at(1, 7), 0.2);

  const double three[] = {0.0, 0.0, 0.0};
  EXPECT_HAS(error_of([&] { make_lr_schedule(cycle, three, true); }),
             "scheduler.params.cycle_min_lr: expected one value per parameter group (3), got 2");
  WarmupLrConfig warmup;
  warmup.max_lr = std::vector<double>{1.0};
  EXPECT_HAS(error_of([&] { make_lr_schedule(warmup, two, true); }),
             "scheduler.params.warmup_max_lr: expected one value per parameter group (2), got 1");
}

TEST(LrSchedule, OneCycleLeavesAnOptimizerWithoutBetasAlone) {
  OneCycleConfig cycle;
  const double lrs[] = {0.1};
  EXPECT_TRUE(make_lr_schedule(cycle, lrs, true)->betas());
  EXPECT_FALSE(make_lr_schedule(cycle, lrs, false)->betas());
  cycle.cycle_momentum = false;
  EXPECT_FALSE(make_lr_schedule(cycle, lrs, true)->betas());
}

TEST(LrSchedule, StairsHoldTheirValue) {
  const json params = {{"cycle_min_lr", 0.0},
                       {"cycle_max_lr", 1.0},
                       {"cycle_first_step_size", 10},
                       {"cycle_first_stair_count", 5}};
  const auto schedule = schedule_with("OneCycle", params);
  // Up: one stair of 1/5 every two updates; down likewise.
  const double expected[] = {0.0, 0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8, 0.8, 1.0,
                             0.8, 0.8, 0.6, 0.6, 0.4, 0.4, 0.2, 0.2, 0.0, 0.0};
  for (std::int64_t index = 0; index < 20; ++index) {
    EXPECT_DOUBLE_EQ(schedule->lr_at(0, index), expected[index]) << index;
  }
}

// A warm-up from 0 to 1e-3 over 4 updates, then a cosine to update 20.
const json kWarmCosine = {{"total_num_steps", 20},
                          {"warmup_num_steps", 4},
                          {"warmup_type", "linear"},
                          {"cos_min_ratio", 0.0}};

TEST(LrSchedule, ResumeContinuesTheOneListOfValues) {
  const auto whole = schedule_with("WarmupCosineLR", kWarmCosine, 1e-3);
  std::vector<double> list;
  for (int update = 0; update < 24; ++update, whole->advance()) list.push_back(whole->lr(0));
  EXPECT_EQ(list[0], 0.0) << "the first update uses index 0, not the optimizer's 1e-3";
  EXPECT_DOUBLE_EQ(list[1], 0.25e-3);
  EXPECT_DOUBLE_EQ(list[11], 0.5e-3) << "half of the 16 updates after the warm-up";
  for (std::size_t update = 20; update < list.size(); ++update) {
    EXPECT_EQ(list[update], list[19]) << "past the end the last value holds";
  }
  for (const std::int64_t saved : {0, 1, 4, 10, 19, 20}) {
    const auto resumed = schedule_with("WarmupCosineLR", kWarmCosine, 1e-3);
    resumed->set_num_updates(saved);
    for (auto update = static_cast<std::size_t>(saved); update < list.size(); ++update) {
      EXPECT_EQ(resumed->lr(0), list[update]) << saved << " " << update;
      resumed->advance();
    }
  }
}

TEST(LrSchedule, SkippedUpdateIsNotCounted) {
  const auto schedule = schedule_with("WarmupCosineLR", kWarmCosine, 1e-3);
  for (int update = 0; update < 6; ++update) schedule->advance();
  const double coming = schedule->lr(0);
  // Nothing to call for a skipped update: the next one sees the same value.
  EXPECT_EQ(schedule->num_updates(), 6);
  EXPECT_EQ(schedule->lr(0), coming);
  EXPECT_THROW(schedule->set_num_updates(-1), tensor::InvalidArgument);
}

TEST(LrSchedule, HugeSettingsStayFinite) {
  const json params = {{"cycle_min_lr", 0.1},
                       {"cycle_max_lr", 1.0},
                       {"cycle_first_step_size", 1'000'000'000},
                       {"cycle_first_stair_count", 1'000'000'000},
                       {"decay_step_size", 1},
                       {"decay_lr_rate", 1e300}};
  const auto schedule = schedule_with("OneCycle", params);
  for (const std::int64_t index : {std::int64_t{0}, std::int64_t{999'999'999}, INT64_MAX / 2}) {
    EXPECT_TRUE(std::isfinite(schedule->lr_at(0, index))) << index;
  }
}

}  // namespace
}  // namespace penstock::engine
