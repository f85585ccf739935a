// What a run computes, adds up and communicates in: the sections fp16, bf16 and data_types, and
// communication_data_type.
#pragma once

#include <optional>

#include "engine/loss_scaler.h"
#include "tensor/dtype.h"

namespace penstock::engine {

struct PrecisionConfig {
  // Of weights and activations. Beside weights of 16 bits the optimizer keeps f32 masters, which
  // it updates and rounds.
  tensor::DType weights = tensor::DType::kF32;
  tensor::DType gradients = tensor::DType::kF32;  // in which those of weights add up
  std::optional<tensor::DType> communication;     // of these gradients; none: as they add up
  LossScaleConfig loss_scale;                     // with f16 weights

  bool has_masters() const { return weights != tensor::DType::kF32; }
  bool operator==(const PrecisionConfig&) const = default;
};

struct ZeroConfig {
  // 1: each replica keeps the optimizer state of its share of the weights, and updates these; 2:
  // of a chunk's gradients it keeps its share alone once they are complete. 0: everything.
  int stage = 0;
  // With stage 2: gradients are reduced to the shares after each micro batch.
  bool reduce_each_micro_batch = false;

  bool operator==(const ZeroConfig&) const = default;
};

// How gradients are summed over replicas.
struct ReductionConfig {
  bool mean = true;               // gradient_allreduce_op; else their sum
  double predivide_factor = 1.0;  // gradient_predivide_factor
  bool prescale = false;          // prescale_gradients

  bool operator==(const ReductionConfig&) const = default;
};

}  // namespace penstock::engine
