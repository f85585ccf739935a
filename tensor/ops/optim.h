// Optimizer updates: each reads and writes every element once. In place, not recorded.
//
// All tensors of a call have one shape and one dtype, f32 or f64 on the CPU; numbers are worked out
// in double and rounded to that dtype once. grad_scale multiplies the gradient first (clipping,
// unscaling). The meta device only checks. InvalidArgument when tensors do not fit or the storage
// of one that is written was given to send.
#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

struct SgdHyper {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;  // added to the gradient, times the parameter
};

// torch.optim.SGD's formulas: with momentum, buffer = g at the first update and momentum · buffer +
// (1 − dampening) · g later, and parameter −= lr · buffer; without, parameter −= lr · g and the
// buffer may be undefined.
void sgd_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& momentum_buffer,
                const SgdHyper& hyper, double grad_scale, bool first);

struct AdamHyper {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = false;  // AdamW: parameter ·= 1 − lr · weight_decay; else added to the gradient
  bool bias_correction = true;
};

// torch.optim.Adam's and AdamW's formulas:
//   exp_avg += (1 − beta1) · (g − exp_avg), exp_avg_sq = beta2 · exp_avg_sq + (1 − beta2) · g²,
//   parameter −= lr / c1 · exp_avg / (√exp_avg_sq / √c2 + eps),
// where c1 = 1 − beta1^step and c2 = 1 − beta2^step, or both 1 without bias correction. step counts
// from 1.
void adam_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 Tensor& exp_avg_sq, const AdamHyper& hyper, std::int64_t step, double grad_scale);

}  // namespace penstock::tensor
