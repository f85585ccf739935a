// The numbers of an update of parameters as kernels take them, of all devices.
#pragma once

namespace penstock::tensor {

// g = grad · grad_scale + p · decay; buffer = keep · buffer + add · g; p += step · move, where move
// is g when there is no buffer, g + ahead · buffer when ahead is not 0, else buffer. keep = 0 does
// not read the buffer.
struct SgdFactors {
  double grad_scale, decay, keep, add, ahead, step;
};

// g = grad · grad_scale + p · decay; m += one_minus_beta1 · (g − m);
// v = beta2 · v + one_minus_beta2 · g²; p = p · shrink + step · m / (√v / root_c2 + eps).
struct AdamFactors {
  double grad_scale, decay, shrink, one_minus_beta1, beta2, one_minus_beta2, root_c2, eps, step;
};

// g = grad · grad_scale; p = p · shrink − step · sign(m + one_minus_beta1 · (g − m));
// m += one_minus_beta2 · (g − m).
struct LionFactors {
  double grad_scale, shrink, one_minus_beta1, one_minus_beta2, step;
};

// g, m and v as Adam's without decay; u = m / (√v + eps) + decay · p; p += step · u.
struct LambFactors {
  double grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, eps, step;
};

}  // namespace penstock::tensor
