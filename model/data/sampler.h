// Sampler: the order in which an epoch visits the samples of a data set.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace penstock::model {

// In order, or, with a seed, in an order drawn anew for each epoch. The order is a function of
// (samples, seed, epoch) alone, so it is the same on every rank, grid and machine. A shuffled one
// takes 8 bytes per sample.
class Sampler {
 public:
  // samples ≥ 0; starts in epoch 0.
  Sampler(std::int64_t samples, std::optional<std::uint64_t> shuffle_seed);

  std::int64_t size() const { return size_; }
  void set_epoch(std::int64_t epoch);
  // The sample at a place of this epoch's order; 0 ≤ place < size().
  std::int64_t operator[](std::int64_t place) const {
    return order_.empty() ? place : order_[static_cast<std::size_t>(place)];
  }

 private:
  std::int64_t size_;
  std::optional<std::uint64_t> seed_;
  std::vector<std::int64_t> order_;  // empty: in order
};

}  // namespace penstock::model
