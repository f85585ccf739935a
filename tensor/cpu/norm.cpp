#include "tensor/cpu/norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/cpu/norm_data.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

// Calls step(tag, i) for i = 0, 1, … in steps of whole vectors, then for what is left in single
// elements.
template <class T, class Step>
HWY_INLINE void for_vectors(std::size_t n, const Step& step) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(d, i);
  for (; i < n; ++i) step(one, i);
}

// Σ term(tag, i) over the same steps; two partial sums per lane hide the latency of the addition.
template <class T, class Term>
HWY_INLINE T sum_vectors(std::size_t n, const Term& term) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, term(d, i));
    odd = hn::Add(odd, term(d, i + lanes));
  }
  T total = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) total += hn::GetLane(term(one, i));
  return total;
}

template <class T>
HWY_INLINE void normalize_rows(const NormForward<T>& p, std::size_t begin, std::size_t end,
                               std::size_t cols, double epsilon) {
  const T divisor = static_cast<T>(cols);
  for (std::size_t row = begin; row < end; ++row) {
    const T* x = p.x + row * cols;
    T* y = p.y + row * cols;
    const T mean =
        sum_vectors<T>(cols, [x](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, x + i); }) /
        divisor;
    const T squares = sum_vectors<T>(cols, [x, mean](auto d, std::size_t i) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
      return hn::Mul(centred, centred);
    });
    const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(squares / divisor) + epsilon));
    p.mean[row] = mean;
    p.scale[row] = scale;
    for_vectors<T>(cols, [&](auto d, std::size_t i) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
      const auto normal = hn::Mul(centred, hn::Set(d, scale));
      hn::StoreU(hn::MulAdd(normal, hn::LoadU(d, p.gamma + i), hn::LoadU(d, p.beta + i)), d, y + i);
    });
  }
}

// dx = scale · (g − mean(g) − n · mean(g·n)) with n the normalised x and g = dy · gamma.
template <class T>
HWY_INLINE void input_grad_row(const NormBackward<T>& p, std::size_t row, std::size_t cols) {
  const T* dy = p.dy + row * cols;
  const T* x = p.x + row * cols;
  T* dx = p.dx + row * cols;
  const T mean = p.mean[row];
  const T scale = p.scale[row];
  const auto g = [&](auto d, std::size_t i)
                     HWY_ATTR { return hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, p.gamma + i)); };
  const auto normal = [&](auto d, std::size_t i) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, scale));
  };
  const T divisor = static_cast<T>(cols);
  const T mean_g = sum_vectors<T>(cols, g) / divisor;
  const T mean_gn = sum_vectors<T>(cols, [&](auto d, std::size_t i)
                                             HWY_ATTR { return hn::Mul(g(d, i), normal(d, i)); }) /
                    divisor;
  for_vectors<T>(cols, [&](auto d, std::size_t i) HWY_ATTR {
    const auto centred = hn::Sub(g(d, i), hn::Set(d, mean_g));
    const auto result = hn::NegMulAdd(normal(d, i), hn::Set(d, mean_gn), centred);
    hn::StoreU(hn::Mul(result, hn::Set(d, scale)), d, dx + i);
  });
}

// Adds a row's dy · n to dgamma and its dy to dbeta.
template <class T>
HWY_INLINE void weight_grad_row(const NormBackward<T>& p, std::size_t row, std::size_t cols) {
  const T* dy = p.dy + row * cols;
  const T* x = p.x + row * cols;
  for_vectors<T>(cols, [&](auto d, std::size_t i) HWY_ATTR {
    const auto gradient = hn::LoadU(d, dy + i);
    const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, p.mean[row]));
    const auto normal = hn::Mul(centred, hn::Set(d, p.scale[row]));
    hn::StoreU(hn::MulAdd(gradient, normal, hn::LoadU(d, p.dgamma + i)), d, p.dgamma + i);
    hn::StoreU(hn::Add(gradient, hn::LoadU(d, p.dbeta + i)), d, p.dbeta + i);
  });
}

template <class T>
HWY_INLINE void grad_rows(const NormBackward<T>& p, std::size_t begin, std::size_t end,
                          std::size_t cols) {
  for (std::size_t row = begin; row < end; ++row) {
    if (p.dgamma != nullptr) weight_grad_row(p, row, cols);  // first: dx may be written over dy
    if (p.dx != nullptr) input_grad_row(p, row, cols);
  }
}

void normalize_f32(const NormForward<float>& p, std::size_t begin, std::size_t end,
                   std::size_t cols, double epsilon) {
  normalize_rows(p, begin, end, cols, epsilon);
}
void normalize_f64(const NormForward<double>& p, std::size_t begin, std::size_t end,
                   std::size_t cols, double epsilon) {
  normalize_rows(p, begin, end, cols, epsilon);
}
void grads_f32(const NormBackward<float>& p, std::size_t begin, std::size_t end, std::size_t cols) {
  grad_rows(p, begin, end, cols);
}
void grads_f64(const NormBackward<double>& p, std::size_t begin, std::size_t end,
               std::size_t cols) {
  grad_rows(p, begin, end, cols);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(normalize_f32);
HWY_EXPORT(normalize_f64);
HWY_EXPORT(grads_f32);
HWY_EXPORT(grads_f64);

namespace {

void run_normalize(const NormForward<float>& p, std::size_t begin, std::size_t end,
                   std::size_t cols, double epsilon) {
  HWY_DYNAMIC_DISPATCH(normalize_f32)(p, begin, end, cols, epsilon);
}
void run_normalize(const NormForward<double>& p, std::size_t begin, std::size_t end,
                   std::size_t cols, double epsilon) {
  HWY_DYNAMIC_DISPATCH(normalize_f64)(p, begin, end, cols, epsilon);
}
void run_grads(const NormBackward<float>& p, std::size_t begin, std::size_t end, std::size_t cols) {
  HWY_DYNAMIC_DISPATCH(grads_f32)(p, begin, end, cols);
}
void run_grads(const NormBackward<double>& p, std::size_t begin, std::size_t end,
               std::size_t cols) {
  HWY_DYNAMIC_DISPATCH(grads_f64)(p, begin, end, cols);
}

std::int64_t rows_per_chunk(std::int64_t cols) {
  constexpr std::int64_t kElements = 1 << 15;  // that one thread takes at a time
  return std::max<std::int64_t>(8, kElements / std::max<std::int64_t>(cols, 1));
}

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// One sum per column for each chunk of rows, then added up in the chunks' order: dgamma's columns,
// then dbeta's.
template <class T>
class ChunkSums {
 public:
  ChunkSums(std::int64_t chunks, std::int64_t cols)
      : chunks_(chunks), cols_(cols), sums_(new T[static_cast<std::size_t>(chunks * 2 * cols)]()) {}

  T* dgamma(std::int64_t chunk) { return sums_.get() + chunk * 2 * cols_; }
  T* dbeta(std::int64_t chunk) { return dgamma(chunk) + cols_; }

  void total(T* dgamma_out, T* dbeta_out) {
    std::fill_n(dgamma_out, cols_, T(0));
    std::fill_n(dbeta_out, cols_, T(0));
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      for (std::int64_t i = 0; i < cols_; ++i) dgamma_out[i] += dgamma(chunk)[i];
      for (std::int64_t i = 0; i < cols_; ++i) dbeta_out[i] += dbeta(chunk)[i];
    }
  }

 private:
  std::int64_t chunks_, cols_;
  std::unique_ptr<T[]> sums_;
};

}  // namespace

void layer_norm(const Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                double epsilon, const Tensor& y, const Tensor& mean, const Tensor& scale) {
  const std::int64_t cols = x.dim(-1);
  for_cpu_dtype("layer_norm", x.dtype(), [&]<class T>(T) {
    const NormForward<T> p = {x.data<T>(), gamma.data<T>(), beta.data<T>(),
                              y.data<T>(), mean.data<T>(),  scale.data<T>()};
    parallel_chunks(
        context, mean.numel(), rows_per_chunk(cols), [&](std::int64_t begin, std::int64_t end) {
          run_normalize(p, static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
                        static_cast<std::size_t>(cols), epsilon);
        });
  });
}

void layer_norm_grad(const Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                     const Tensor& mean, const Tensor& scale, const Tensor& dx,
                     const Tensor& dgamma, const Tensor& dbeta) {
  const std::int64_t rows = mean.numel();
  const std::int64_t cols = x.dim(-1);
  const std::int64_t chunk = rows_per_chunk(cols);
  for_cpu_dtype("layer_norm", x.dtype(), [&]<class T>(T) {
    const bool weights = dgamma.defined();
    ChunkSums<T> sums(weights ? (rows + chunk - 1) / chunk : 0, cols);
    const NormBackward<T> all = {dy.data<T>(),   x.data<T>(),     gamma.data<T>(),
                                 mean.data<T>(), scale.data<T>(), data_or_null<T>(dx),
                                 nullptr,        nullptr};
    parallel_chunks(context, rows, chunk, [&](std::int64_t begin, std::int64_t end) {
      NormBackward<T> part = all;
      if (weights) {
        part.dgamma = sums.dgamma(begin / chunk);
        part.dbeta = sums.dbeta(begin / chunk);
      }
      run_grads(part, static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
                static_cast<std::size_t>(cols));
    });
    if (weights) sums.total(dgamma.data<T>(), dbeta.data<T>());
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
