// LossScaler: what the loss of an fp16 step is multiplied with, so that small gradients do not
// vanish. The rules are those of DeepSpeed's dynamic scaler under ZeRO, for every ZeRO stage.
#pragma once

#include <cstdint>

namespace penstock::engine {

// The keys of the section fp16, with DeepSpeed's defaults.
struct LossScaleConfig {
  double fixed = 0.0;                   // loss_scale; 0: dynamic, as the others say
  int initial_scale_power = 16;         // begins with 2 to this power
  std::int64_t window = 1000;           // updates without overflow after which the scale doubles
  int hysteresis = 2;                   // this many overflows halve it
  bool consecutive_hysteresis = false;  // a step without overflow forgets earlier ones
  double min_scale = 1.0;

  bool operator==(const LossScaleConfig&) const = default;
};

// Belongs to one rank. All ranks make the same calls, and so keep the same scale.
class LossScaler {
 public:
  // What a checkpoint keeps.
  struct State {
    double scale = 1.0;
    std::int64_t iteration = 0;       // calls of update()
    std::int64_t last_overflow = -1;  // of them; -1: none yet
    int overflows_left = 1;           // until the scale halves

    bool operator==(const State&) const = default;
  };

  // Of scale 1, that never moves: fp32 and bf16.
  LossScaler() = default;
  explicit LossScaler(const LossScaleConfig& config);

  // Of the coming step.
  double scale() const { return state_.scale; }
  bool dynamic() const { return dynamic_; }
  // Whether an overflow now would have to halve a scale that is at its minimum: training cannot go
  // on, and DeepSpeed ends the run.
  bool exhausted() const;
  // After each step, whether its gradients were not finite. A fixed scale stays.
  void update(bool overflow);

  const State& state() const { return state_; }
  // A fixed scale stays what the configuration says.
  void restore(const State& state);

 private:
  LossScaleConfig config_;
  bool dynamic_ = false;
  State state_;
};

}  // namespace penstock::engine
