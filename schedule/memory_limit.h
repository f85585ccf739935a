// How much of the pipe's activations a rank may hold: what a schedule search has to keep to.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/ids.h"

namespace penstock::schedule {

// The most that each rank may hold at a time of what a forward makes and the (full or weight)
// backward frees. By rank; empty: no limit of that kind.
struct MemoryLimit {
  std::vector<int> activations = {};  // (stage, micro batch) pairs
  std::vector<double> bytes = {};     // by the costs' activation_bytes

  bool none() const { return activations.empty() && bytes.empty(); }

  // Whether a rank may hold that much. Bytes are compared up to rounding.
  bool allows(PipeRank rank, int held_activations, double held_bytes) const {
    constexpr double kRounding = 1e-9;
    const auto index = static_cast<std::size_t>(rank.value);
    if (!activations.empty() && held_activations > activations[index]) return false;
    return bytes.empty() || held_bytes <= bytes[index] * (1.0 + kRounding);
  }
};

}  // namespace penstock::schedule
