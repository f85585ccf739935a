// Runs of the tiny golden GPT-2 on any grid and transport, for tests that compare them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"
#include "model/zoo/gpt2.h"

namespace penstock::testing {

inline constexpr int kGoldenMicroBatches = 4;  // per step, over all replicas
inline constexpr int kGoldenMicroBatchRows = 2;
inline constexpr std::int64_t kGoldenContext = 32;
inline constexpr std::int64_t kGoldenSamplesPerStep = 8;

// The model of tests/golden/gpt2_tiny.
model::Gpt2Config golden_gpt2();
// Its token batches from the given step on, in the order in which the engine reads samples; then
// again from there.
std::unique_ptr<model::DataSource> golden_tokens(int first_step);
// Tensors of a golden file by our logical names, whole, in f32.
std::map<std::string, std::vector<float>> golden_tensors(const std::string& file);

struct Gpt2Run {
  int pipe = 1;
  int data = 1;
  int model = 1;
  bool sequence_parallel = false;
  int threads = 1;
  int first_step = 1;  // of the golden token batches
  int steps = 10;
  std::string optimizer = R"({"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95],
                              "eps": 1e-8, "weight_decay": 0.1}})";
  double clip = 0.25;
  std::string more = "{}";  // further members of the configuration

  int ranks() const { return pipe * data * model; }
};

engine::Config config_of(const Gpt2Run& run);

// What one rank saw.
struct Gpt2Outcome {
  std::vector<double> losses;                     // by step
  std::vector<std::vector<double>> micro_losses;  // by step, in global micro batch order
  std::vector<double> norms;
  // Of this rank's stage and its part of the model axis; gradients of the last step, summed over
  // all; and which elements of the whole parameter these are.
  std::map<std::string, std::vector<float>> weights, grads;
  std::map<std::string, std::vector<std::size_t>> elements;
};

// Trains from the golden weights. Collective over the world, whose size is run.ranks().
Gpt2Outcome run_gpt2(comm::World& world, const Gpt2Run& run);

}  // namespace penstock::testing
