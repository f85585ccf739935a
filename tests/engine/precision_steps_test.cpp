// Plain SGD without clipping, which hides no factor: in every precision, each update is that of one
// process in fp32 on the whole batch, and of this step's batch alone.
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "tests/engine/checkpoint_content.h"
#include "tests/engine/mixed_runs.h"
#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

constexpr int kSteps = 2;
constexpr float kLr = 0.125f;

// The f32 weights of a checkpoint: masters, where there are any.
Weights masters_of(const std::filesystem::path& folder, int step) {
  Weights weights;
  for (const auto& [name, bytes] : content_of(folder, "step" + std::to_string(step)).tensors) {
    const std::size_t slash = name.find('/');
    const bool master = slash != std::string::npos && name.substr(slash) == "/master";
    if (slash != std::string::npos && !master) continue;
    std::vector<float>& values = weights[name.substr(0, slash)];
    if (!master && !values.empty()) continue;  // the master came first
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  }
  return weights;
}

Weights combined(const Weights& a, const Weights& b, float factor_a, float factor_b) {
  Weights result = a;
  for (auto& [name, values] : result) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = factor_a * values[i] + factor_b * b.at(name)[i];
    }
  }
  return result;
}

// Weights before each step and after the last.
std::vector<Weights> train_on(const MixedRun& run) {
  const TemporaryFolder folder;
  const auto tag = [](int step) { return "step" + std::to_string(step); };
  on_ranks<bool>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, tie6(), run.config(), token_samples(64));
    engine.save_checkpoint(folder.path(), tag(0));
    for (int step = 1; step <= kSteps; ++step) {
      const engine::TrainResult result = engine.train_batch();
      EXPECT_FALSE(result.skipped);
      EXPECT_EQ(result.loss_scale, run.precision == "fp16" ? 1024.0 : 1.0);
      engine.save_checkpoint(folder.path(), tag(step));
    }
    engine.close();
    return true;
  });
  std::vector<Weights> weights;
  for (int step = 0; step <= kSteps; ++step) weights.push_back(masters_of(folder.path(), step));
  return weights;
}

TEST(PrecisionSteps, AreThoseOfOneProcess) {
  const std::map<std::string, double> tolerances = {{"fp32", 1e-5}, {"fp16", 1e-2}, {"bf16", 6e-2}};
  int ran = 0;
  for (const auto& [precision, tolerance] : tolerances) {
    for (int bits = 0; bits < 8; ++bits) {
      const int gas = (bits & 4) != 0 ? 4 : 1;
      MixedRun run{.precision = precision,
                   .zero = bits & 1,
                   .pipe = 1 + (bits >> 1 & 1),
                   .data = 2,
                   .micro_batches = 2 * gas,
                   .clip = 0.0,
                   .optimizer = R"({"type": "SGD", "params": {"lr": 0.125}})"};
      if (precision == "fp16") run.more = R"({"fp16": {"initial_scale_power": 10}})";
      SCOPED_TRACE(run.text());
      const std::vector<Weights> weights = train_on(run);
      Reference reference(tie6(), weights[0]);
      const auto data = token_samples(64);
      for (std::size_t step = 0; step < kSteps; ++step) {
        reference.clear();
        reference.accumulate(take(*data, 2 * gas));
        ASSERT_GT(reference.norm(), 0.1);
        const Weights gradients =
            combined(weights[step], weights[step + 1], 1.0f / kLr, -1.0f / kLr);
        expect_close(gradients, reference.gradients(), tolerance);
        reference.sgd(kLr);
      }
      ++ran;
    }
  }
  EXPECT_EQ(ran, 24);
}

}  // namespace
}  // namespace penstock::testing
