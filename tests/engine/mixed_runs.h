// Training runs over precision, ZeRO, all three axes of the grid and recomputation.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/fixtures.h"

namespace penstock::testing {

struct MixedRun {
  std::string precision = "fp32";  // or "bf16", "fp16"
  int zero = 0;
  int pipe = 1, data = 1, model = 1;
  std::string schedule = "1f1b";
  int recompute = 0;
  int micro_batches = 8;  // of all replicas together
  double clip = 1.0;
  std::string optimizer = R"({"type": "AdamW", "params": {"lr": 0.003, "weight_decay": 0.1}})";
  std::string more = "{}";  // further members of the configuration

  int ranks() const { return pipe * data * model; }
  std::string text() const;
  engine::Config config() const;
};

// GPT-2 of four blocks, two heads of four, with tied embeddings, over token_samples().
model::Module small_gpt();

struct MixedOutcome {
  std::vector<double> losses, norms, scales;  // by step
  std::vector<bool> skipped;
  Weights weights;  // of this rank, after the last step, as f32
};

// Weights of any floating dtype, of this rank's stages.
Weights float_weights(engine::Engine& engine);
// Collective over the world, of run.ranks().
MixedOutcome train(engine::Engine& engine, int steps);
// From now on puts an infinity into a gradient of `rank`, in its micro batch 3 of the step after
// `after` steps.
void spoil(engine::Engine& engine, const comm::World& world, int rank, std::int64_t after);
// On ranks that are threads; fails the test where ranks disagree on what they share.
std::vector<MixedOutcome> train(const model::Module& module,
                                const std::function<std::unique_ptr<model::DataSource>()>& data,
                                const MixedRun& run, int steps);

}  // namespace penstock::testing
