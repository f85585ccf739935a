// The batch arithmetic: train_batch_size = train_micro_batch_size_per_gpu ×
// gradient_accumulation_steps × data-parallel size, with DeepSpeed's rules for what is left out.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config.h"

namespace penstock::engine {

// The number of replicas, and how it came about for messages: "world 4 / (PP 2 × TP 1) = 2".
struct DataParallelSize {
  std::int64_t size = 1;
  std::string origin;
};

// World ÷ (pipe × model). Throws ConfigError if that is no whole number.
DataParallelSize data_parallel_size(std::int64_t world, std::int64_t pipe, std::int64_t model);

struct BatchTriple {
  std::int64_t train_batch_size = 1;
  std::int64_t train_micro_batch_size_per_gpu = 1;
  std::int64_t gradient_accumulation_steps = 1;
  bool operator==(const BatchTriple&) const = default;
};

// Completes and checks the batch keys. Two give the third; the total alone means one micro batch
// per step, the micro batch alone one accumulation step; accumulation steps alone or nothing is an
// error. Throws ConfigError that names the keys, their values and the replicas.
BatchTriple resolve_batch(const BatchConfig& batch, const DataParallelSize& replicas);

}  // namespace penstock::engine
