#include "model/data/sampler.h"

#include <numeric>
#include <random>
#include <string>

#include "tensor/error.h"

namespace penstock::model {

Sampler::Sampler(std::int64_t samples, std::optional<std::uint64_t> shuffle_seed)
    : size_(samples), seed_(shuffle_seed) {
  if (samples < 0) {
    throw tensor::InvalidArgument("[sampler] expected samples >= 0, got " +
                                  std::to_string(samples));
  }
  set_epoch(0);
}

void Sampler::set_epoch(std::int64_t epoch) {
  if (!seed_) return;
  // The standard fixes what seed_seq and mt19937_64 give, but not what std::shuffle draws.
  const auto number = static_cast<std::uint64_t>(epoch);
  std::seed_seq seeds{static_cast<std::uint32_t>(*seed_), static_cast<std::uint32_t>(*seed_ >> 32),
                      static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)};
  std::mt19937_64 draw(seeds);
  order_.resize(static_cast<std::size_t>(size_));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  for (std::size_t left = order_.size(); left > 1; --left) {
    std::swap(order_[left - 1], order_[draw() % left]);
  }
}

}  // namespace penstock::model
