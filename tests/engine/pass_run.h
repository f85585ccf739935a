// Passes of one chunk over a few steps, with or without graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/pass_graphs.h"
#include "model/module.h"
#include "tensor/dtype.h"

namespace penstock::engine {

inline constexpr std::int64_t kTokens = 6, kWidth = 8, kVocabulary = 13;

// Six layers.
model::Module gpt2(double dropout = 0.0);

// One chunk of a model over a few steps.
struct Scenario {
  model::Module module = gpt2();
  std::int64_t begin = 0, end = 6;  // layers
  int steps = 6, micro_batches = 3, buffers = 2;
  bool split = false;  // input and weight passes
  std::int64_t recompute = 0;
  tensor::DType dtype = tensor::DType::kF32;
  std::function<std::int64_t(int, int)> rows = [](int, int) { return 2; };      // step, micro batch
  std::function<double(int, int)> scale = [](int, int) { return 1.0 / 64.0; };  // of the loss
  bool evaluates = false;                                                       // before each step
  bool frees_gradients = false;                                                 // after each step
  bool names = false;      // micro batches have a tensor "factor"
  std::uint64_t seed = 0;  // of the order of streams
};

using Bits = std::vector<std::byte>;

struct Outcome {
  std::vector<Bits> results;  // losses, outputs, gradients in order
  PassGraphs::Use use;
  std::vector<std::string> told;
  std::int64_t graph_bytes = 0, rank_bytes = 0;  // before the end; rank_bytes beside the graphs'
};

// On an emulated device.
Outcome run_passes(const Scenario& scenario, bool graphs);

}  // namespace penstock::engine
