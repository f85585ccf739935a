// The loss scale against DeepSpeed's own scalers.
#include "engine/loss_scaler.h"

#include "config_support.h"

namespace penstock::engine {
namespace {

using nlohmann::json;

LossScaleConfig config_of(const json& row) {
  return {.initial_scale_power = row["initial_scale_power"],
          .window = row["loss_scale_window"],
          .hysteresis = row["hysteresis"],
          .consecutive_hysteresis = row["consecutive_hysteresis"],
          .min_scale = row["min_loss_scale"]};
}

// Compares with a row until the scale cannot go down any more. Returns the steps compared.
std::size_t compare(const json& row, const LossScaleConfig& config) {
  LossScaler scaler(config);
  const std::vector<double> expected = row["scale_after"];
  for (std::size_t n = 0; n < expected.size(); ++n) {
    const bool overflow = row["overflow"][n] == 1;
    if (overflow && scaler.exhausted()) return n;
    scaler.update(overflow);
    EXPECT_EQ(scaler.scale(), expected[n]) << "after step " << n + 1 << " of " << row.dump();
  }
  return expected.size();
}

TEST(LossScaler, FollowsDeepSpeedsScalerUnderZero) {
  std::size_t rows = 0, ended = 0;
  for (const json& row : test::golden_rows("deepspeed_loss_scale.jsonl")) {
    if (row["scaler"] != "zero_DynamicLossScaler") continue;
    ++rows;
    const std::size_t steps = compare(row, config_of(row));
    EXPECT_EQ(steps, row["scale_after"].size());
    if (row["error_after_n"].is_null()) continue;
    // DeepSpeed ends the run at the overflow after the last value.
    ++ended;
    EXPECT_EQ(row["overflow"][steps], 1);
    LossScaler scaler(config_of(row));
    for (std::size_t n = 0; n < steps; ++n) scaler.update(row["overflow"][n] == 1);
    EXPECT_TRUE(scaler.exhausted());
  }
  EXPECT_EQ(rows, 21u);
  EXPECT_GE(ended, 3u);
}

// DeepSpeed's scaler without ZeRO knows no hysteresis, and goes on at the minimum.
TEST(LossScaler, FollowsDeepSpeedsOtherScalerWithoutHysteresis) {
  std::size_t rows = 0, steps = 0;
  for (const json& row : test::golden_rows("deepspeed_loss_scale.jsonl")) {
    if (row["scaler"] != "fused_FP16_Optimizer") continue;
    ++rows;
    LossScaleConfig config = config_of(row);
    config.hysteresis = 1;
    steps += compare(row, config);
  }
  EXPECT_EQ(rows, 25u);
  EXPECT_GT(steps, 300u);
}

TEST(LossScaler, AFixedScaleStays) {
  LossScaler scaler({.fixed = 128.0});
  scaler.update(true);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 128.0);
  EXPECT_FALSE(scaler.dynamic());
  scaler.restore({.scale = 4.0});
  EXPECT_EQ(scaler.scale(), 128.0);
  EXPECT_EQ(LossScaler().scale(), 1.0);
}

TEST(LossScaler, GoesOnFromItsState) {
  const LossScaleConfig config{.initial_scale_power = 8, .window = 3, .hysteresis = 2};
  LossScaler whole(config), first(config);
  const bool overflow[] = {false, true, false, true, false, false, false, false, true, true};
  for (int n = 0; n < 5; ++n) {
    whole.update(overflow[n]);
    first.update(overflow[n]);
  }
  LossScaler second(config);
  second.restore(first.state());
  for (int n = 5; n < 10; ++n) {
    whole.update(overflow[n]);
    second.update(overflow[n]);
    EXPECT_EQ(second.scale(), whole.scale());
  }
  EXPECT_EQ(second.state(), whole.state());
}

}  // namespace
}  // namespace penstock::engine
