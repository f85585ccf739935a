#include "engine/loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace penstock::engine {

namespace {

// Far beyond any use: a run without gradients must not double the scale to infinity.
constexpr double kLargest = 0x1p127;

}  // namespace

LossScaler::LossScaler(const LossScaleConfig& config)
    : config_(config), dynamic_(config.fixed == 0.0) {
  state_.scale = dynamic_ ? std::ldexp(1.0, config.initial_scale_power) : config.fixed;
  state_.overflows_left = config.hysteresis;
}

bool LossScaler::exhausted() const {
  return dynamic_ && state_.overflows_left == 1 && state_.scale <= config_.min_scale;
}

void LossScaler::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    if (state_.overflows_left > 1) {
      --state_.overflows_left;
    } else {
      state_.scale = std::max(state_.scale / 2.0, config_.min_scale);
    }
    state_.last_overflow = state_.iteration;
  } else {
    if (config_.consecutive_hysteresis) state_.overflows_left = config_.hysteresis;
    const std::int64_t stable = state_.iteration - state_.last_overflow - 1;
    if (stable > 0 && stable % config_.window == 0) {
      state_.scale = std::min(2.0 * state_.scale, kLargest);
      state_.overflows_left = config_.hysteresis;
    }
  }
  ++state_.iteration;
}

void LossScaler::restore(const State& state) {
  if (dynamic_) state_ = state;
}

}  // namespace penstock::engine
