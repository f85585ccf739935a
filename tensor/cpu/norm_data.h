// What the kernels of the norms work on, for norm.cpp alone. Rows are those of x, one behind the
// other. With a null mean rows are not centred, and there is no beta.
#pragma once

namespace penstock::tensor::cpu {

template <class T>
struct NormForward {
  const T* x;
  const T* gamma;
  const T* beta;
  T* y;
  T* mean;
  T* scale;
};

template <class T>
struct NormBackward {
  const T* dy;
  const T* x;
  const T* gamma;
  const T* mean;
  const T* scale;
  T* dx;      // null: not wanted
  T* dgamma;  // this chunk's sums; null: not wanted
  T* dbeta;
};

}  // namespace penstock::tensor::cpu
