// Optimizer updates: each reads and writes every element once. In place, not recorded. Parameters
// that are updated with the same numbers are best given together: a CUDA device runs all of a list
// in one kernel, or in a few.
//
// A parameter and its state have one shape and one dtype, f32 or f64; numbers are worked out in
// double and rounded to that dtype once. The gradient has the same shape and any floating dtype;
// grad_scale multiplies it first (unscaling and clipping in one). A parameter of 16 bits is trained
// as its f32 master: `rounded`, where defined, is a tensor of any floating dtype that gets the new
// parameter in the same pass. The meta device only checks. InvalidArgument when tensors do not fit
// or the storage of one that is written was given to send.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// One parameter of a list, with the state that its optimizer keeps of it.
struct ParameterTensors {
  Tensor parameter;
  Tensor grad;
  Tensor state;         // SGD's momentum_buffer; exp_avg of the others
  Tensor squares = {};  // exp_avg_sq of Adam and LAMB
  Tensor rounded = {};
};
using ParameterList = std::span<const ParameterTensors>;

struct SgdHyper {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;  // added to the gradient, times the parameter
  bool nesterov = false;      // needs a momentum and no dampening
};

// torch.optim.SGD's formulas: with momentum, buffer = g at the first update and momentum · buffer +
// (1 − dampening) · g later, and parameter −= lr · buffer, or lr · (g + momentum · buffer) with
// nesterov; without, parameter −= lr · g and the buffer may be undefined.
void sgd_update(Context& context, ParameterList parameters, const SgdHyper& hyper,
                double grad_scale, bool first);
void sgd_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& momentum_buffer,
                const SgdHyper& hyper, double grad_scale, bool first, const Tensor& rounded = {});

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
void adam_update(Context& context, ParameterList parameters, const AdamHyper& hyper,
                 std::int64_t step, double grad_scale);
void adam_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 Tensor& exp_avg_sq, const AdamHyper& hyper, std::int64_t step, double grad_scale,
                 const Tensor& rounded = {});

struct LionHyper {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;  // decoupled
};

// Lion (Chen et al. 2023, algorithm 2):
//   parameter = (1 − lr · weight_decay) · parameter − lr · sign(beta1 · exp_avg + (1 − beta1) · g),
//   exp_avg = beta2 · exp_avg + (1 − beta2) · g; sign(0) = 0, and not a number stays one.
void lion_update(Context& context, ParameterList parameters, const LionHyper& hyper,
                 double grad_scale);
void lion_update(Context& context, Tensor& parameter, const Tensor& grad, Tensor& exp_avg,
                 const LionHyper& hyper, double grad_scale, const Tensor& rounded = {});

struct LambHyper {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double max_coeff = 10.0;  // limits of the trust ratio
  double min_coeff = 0.01;
  bool bias_correction = true;
};

// Σ parameter² and Σ u² of a parameter or of a part of one; sums of the whole are those of its
// parts added up.
struct LambSums {
  double parameter_squares = 0.0;
  double direction_squares = 0.0;
};

// LAMB (You et al. 2020) in DeepSpeed's form, in two halves, since the trust ratio needs sums over
// the whole logical parameter:
//   the first moves the moments, as Adam's, and gives the sums for
//     u = exp_avg / (√exp_avg_sq + eps) + weight_decay · parameter;
//   the second does parameter −= lr · √c2 / c1 · ratio · u, where ratio = √(Σ parameter² / Σ u²)
//   within [min_coeff, max_coeff], or 1 when a sum is 0, and c1 and c2 are Adam's.
// Whoever holds only a part of a parameter adds the sums of all parts in between. The sums of the
// first half are added in an order that depends on the size alone; 0 on the meta device. They are
// read by the host, so on a CUDA device lamb_moments waits: once for the list.
std::vector<LambSums> lamb_moments(Context& context, ParameterList parameters,
                                   const LambHyper& hyper, double grad_scale);
LambSums lamb_moments(Context& context, const Tensor& parameter, const Tensor& grad,
                      Tensor& exp_avg, Tensor& exp_avg_sq, const LambHyper& hyper,
                      double grad_scale);
// sums: of each parameter of the list, whose gradients are not looked at.
void lamb_apply(Context& context, ParameterList parameters, const LambHyper& hyper,
                std::int64_t step, std::span<const LambSums> sums);
void lamb_apply(Context& context, Tensor& parameter, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const LambHyper& hyper, std::int64_t step,
                const LambSums& sums, const Tensor& rounded = {});

}  // namespace penstock::tensor
