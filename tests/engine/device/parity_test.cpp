// Training on CUDA devices, emulated ones or those of the machine, beside the same on the CPU.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "model/zoo/gpt2.h"
#include "tests/engine/device/device_runs.h"
#include "tests/support/cuda_devices.h"

namespace penstock::testing {
namespace {

// With heads of 64 numbers, which attention multiplies on tensor cores in 16 bits.
model::Module wide_gpt2() {
  return model::make_gpt2({.layers = 2,
                           .heads = 2,
                           .width = 128,
                           .context = kSmallContext,
                           .vocabulary = kSmallVocabulary});
}

// For which the usual rate is too high: losses would jump, and drift apart.
std::string gently(const std::string& precision = "") {
  return R"({"scheduler": {"type": "WarmupLR",
                           "params": {"warmup_min_lr": 1e-3, "warmup_max_lr": 1e-3}})" +
         (precision.empty() ? "" : ", " + precision) + "}";
}

const std::string kBf16 = R"("bf16": {"enabled": true})";
const std::string kFp16 = R"("fp16": {"enabled": true, "initial_scale_power": 8})";

// Of losses, and of the first step's gradients by their norm.
struct Tolerance {
  double losses, gradients;
};
constexpr Tolerance kSingle = {1e-5, 1e-4}, kHalf = {1e-2, 5e-2};

class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override { comm::prepare_devices(); }
  void TearDown() override { EXPECT_EQ(finish_devices(), ""); }

  // Real devices add up in other orders and round a few functions otherwise.
  static void expect_near_cpu(const DeviceRun& run, const Tolerance& tolerance) {
    const Trained wanted = train_on_cpu(run), got = train_on_devices(run);
    ASSERT_EQ(std::ssize(got.losses), run.steps);
    for (std::size_t step = 0; step < got.losses.size(); ++step) {
      EXPECT_NEAR(got.losses[step], wanted.losses[step], tolerance.losses * wanted.losses[step])
          << run.text() << ", step " << step;
    }
    if (run.zero == 0) expect_close(got.gradients, wanted.gradients, tolerance.gradients);
    EXPECT_LT(got.losses.back(), got.losses.front()) << run.text() << ": it learned nothing";
  }
};

TEST_F(CudaTraining, EqualsTheCpu) {
  ASSERT_GE(start_devices(), 1);
  expect_near_cpu({.steps = 10}, kSingle);
  expect_near_cpu({.more = gently(), .module = wide_gpt2()}, kSingle);
}

TEST_F(CudaTraining, EqualsTheCpuInHalves) {
  ASSERT_GE(start_devices(), 1);
  for (const std::string& half : {kBf16, kFp16}) {
    expect_near_cpu({.more = gently(half), .module = wide_gpt2()}, kHalf);
  }
}

TEST_F(CudaTraining, GivesTheSameBitsAgain) {
  ASSERT_GE(start_devices(), 1);
  const DeviceRun run{.steps = 2, .more = gently(kBf16), .module = wide_gpt2()};
  EXPECT_TRUE(train_on_devices(run) == train_on_devices(run));
}

TEST_F(CudaTraining, RecomputesTheSameBits) {
  ASSERT_GE(start_devices(), 1);
  const DeviceRun run{.steps = 2, .module = wide_gpt2()};
  DeviceRun again = run;
  again.more = R"({"pipeline": {"activation_checkpoint_interval": 1}})";
  EXPECT_TRUE(train_on_devices(run) == train_on_devices(again));
}

TEST_F(CudaTraining, GraphsGiveTheSameBits) {
  ASSERT_GE(start_devices(), 1);
  DeviceRun run{.more = gently(kBf16), .module = wide_gpt2()};
  const Trained wide = train_on_devices(run);
  run.more = gently(kBf16 + R"(, "device": {"graphs": true})");
  EXPECT_TRUE(train_on_devices(run) == wide);

  DeviceRun stages{.grid = {2, 1, 1}, .sharing = true, .steps = 4};
  const Trained two = train_on_devices(stages);
  stages.more = R"({"device": {"graphs": true}})";
  EXPECT_TRUE(train_on_devices(stages) == two);
}

TEST_F(CudaTraining, ReplicasAndModelRanksShareADevice) {
  ASSERT_GE(start_devices(), 1);
  expect_near_cpu({.grid = {1, 2, 1}, .zero = 1, .sharing = true}, kSingle);
  expect_near_cpu({.grid = {1, 1, 2}, .sharing = true}, kSingle);
}

TEST_F(CudaTraining, TwoStagesOnOneDevice) {
  ASSERT_GE(start_devices(), 1);
  expect_near_cpu({.grid = {2, 1, 1}, .sharing = true, .steps = 10}, kSingle);
  expect_near_cpu({.grid = {2, 1, 1}, .schedule = "zb1p", .sharing = true}, kSingle);
  expect_near_cpu(
      {.grid = {2, 1, 1}, .sharing = true, .more = gently(kBf16), .module = wide_gpt2()}, kHalf);
}

TEST_F(CudaTraining, TwoStagesOverNccl) {
  const int devices = start_devices(2);
  if (devices < 2) GTEST_SKIP() << "one device, and NCCL takes one for each rank";
  expect_near_cpu({.grid = {2, 1, 1}, .transport = "nccl", .steps = 10}, kSingle);
  expect_near_cpu({.grid = {1, 2, 1}, .zero = 1, .transport = "nccl"}, kSingle);
}

}  // namespace
}  // namespace penstock::testing
