// Checkpoints and precisions on emulated devices.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "comm/device/devices.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/device/device_runs.h"
#include "tests/engine/mixed_runs.h"

namespace penstock::testing {
namespace {

const std::string kDevice = R"("device": {"type": "cuda"})";

class EmulatedState : public ::testing::Test {
 protected:
  void SetUp() override { comm::prepare_devices(); }
  void TearDown() override {
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
    cuda_emulation::discard();
  }
};

struct Leg {
  int pipe = 1;
  bool cuda = false;
  int steps = 2;
  bool load = false, save = false;
  bool async = false;
};

// Losses of the steps, then the weights.
struct Result {
  std::vector<double> losses;
  Weights weights;
  bool operator==(const Result&) const = default;
};

Result run_leg(const Leg& leg, const std::filesystem::path& folder) {
  if (leg.cuda) cuda_emulation::start({.devices = leg.pipe});
  const RunSpec run{.pipe = leg.pipe,
                    .micro = 2,
                    .gas = 2,
                    .optimizer = kClippedAdamW,
                    .clip = 0.5,
                    .more = leg.cuda ? "{" + kDevice + "}" : "{}"};
  std::vector<Weights> weights(static_cast<std::size_t>(leg.pipe));
  Result result;
  const auto losses = on_ranks<std::vector<double>>(leg.pipe, [&](comm::World& world) {
    engine::Engine engine(world, small_gpt2(/*dropout=*/0.1), config_of(run), small_tokens());
    if (leg.load) engine.load_checkpoint(folder);
    std::vector<double> mine;
    for (int step = 0; step < leg.steps; ++step) mine.push_back(engine.train_batch().loss);
    if (leg.save) engine.save_checkpoint(folder, "", {.async = leg.async});
    weights[static_cast<std::size_t>(world.rank())] = weights_of(engine);
    engine.close();
    return mine;
  });
  return {losses[0], merged(weights)};
}

TEST_F(EmulatedState, ResumesBitForBit) {
  for (const bool async : {false, true}) {
    const TemporaryFolder folder;
    const Result whole = run_leg({.pipe = 2, .cuda = true, .steps = 4}, folder.path());
    run_leg({.pipe = 2, .cuda = true, .save = true, .async = async}, folder.path());
    const Result rest = run_leg({.pipe = 2, .cuda = true, .load = true}, folder.path());
    EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_TRUE(rest.weights == whole.weights);
  }
}

TEST_F(EmulatedState, GoesOnWhereTheCpuSavedAndTheOtherWayRound) {
  const TemporaryFolder unused;
  const Result whole = run_leg({.steps = 4}, unused.path());
  for (const bool cuda_first : {false, true}) {
    const TemporaryFolder folder;
    run_leg({.pipe = 2, .cuda = cuda_first, .save = true}, folder.path());
    const Result rest = run_leg({.pipe = 3, .cuda = !cuda_first, .load = true}, folder.path());
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(rest.losses[i], whole.losses[i + 2], 5e-5);
  }
}

// 16-bit weights, their masters, and overflows that are skipped while the scale falls.
TEST_F(EmulatedState, PrecisionsTrainAsOnTheCpu) {
  constexpr int kSteps = 4;
  const auto tokens = [] { return token_samples(64); };
  struct Case {
    const char* precision;
    std::string more;
    double tolerance;
    bool skips;
  };
  for (const Case& of :
       {Case{"bf16", "", 2e-2, false}, Case{"fp16", "", 5e-3, false},
        Case{"fp16", R"(, "fp16": {"initial_scale_power": 21, "hysteresis": 1})", 5e-3, true}}) {
    for (const int zero : {0, 1}) {
      SCOPED_TRACE(of.precision + of.more + ", ZeRO " + std::to_string(zero));
      MixedRun run{.precision = of.precision, .zero = zero, .pipe = 2, .data = 2};
      if (run.precision == "fp16") run.more = R"({"fp16": {"initial_scale_power": 10}})";
      if (of.skips) run.more = "{" + of.more.substr(2) + "}";
      const MixedOutcome wanted = train(small_gpt(), tokens, run, kSteps)[0];
      nlohmann::json more = nlohmann::json::parse(run.more);
      more["device"]["type"] = "cuda";
      run.more = more.dump();
      cuda_emulation::start({.devices = run.ranks()});
      const MixedOutcome outcome = train(small_gpt(), tokens, run, kSteps)[0];
      EXPECT_GT(cuda_emulation::counters().products, 0);
      EXPECT_EQ(outcome.skipped, wanted.skipped);
      EXPECT_EQ(outcome.skipped[0], of.skips);
      EXPECT_EQ(outcome.scales, wanted.scales);
      for (std::size_t i = 0; i < kSteps; ++i) {
        EXPECT_NEAR(outcome.losses[i], wanted.losses[i], of.tolerance * wanted.losses[i]);
      }
    }
  }
}

}  // namespace
}  // namespace penstock::testing
