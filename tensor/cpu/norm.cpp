#include "tensor/cpu/norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "tensor/cpu/norm_data.h"
#include "tensor/cpu/staged.h"
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
    const auto load = [x](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, x + i); };
    const T mean = p.mean == nullptr ? T(0) : sum_vectors<T>(cols, load) / divisor;
    const T squares = sum_vectors<T>(cols, [x, mean](auto d, std::size_t i) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
      return hn::Mul(centred, centred);
    });
    const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(squares / divisor) + epsilon));
    p.scale[row] = scale;
    if (p.mean == nullptr) {
      for_vectors<T>(cols, [&](auto d, std::size_t i) HWY_ATTR {
        const auto normal = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale));
        hn::StoreU(hn::Mul(normal, hn::LoadU(d, p.gamma + i)), d, y + i);
      });
      continue;
    }
    p.mean[row] = mean;
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
  const bool centred_rows = p.mean != nullptr;
  const T mean = centred_rows ? p.mean[row] : T(0);
  const T scale = p.scale[row];
  const auto g = [&](auto d, std::size_t i)
                     HWY_ATTR { return hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, p.gamma + i)); };
  const auto normal = [&](auto d, std::size_t i) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, scale));
  };
  const T divisor = static_cast<T>(cols);
  const T mean_g = centred_rows ? sum_vectors<T>(cols, g) / divisor : T(0);
  const T mean_gn = sum_vectors<T>(cols, [&](auto d, std::size_t i)
                                             HWY_ATTR { return hn::Mul(g(d, i), normal(d, i)); }) /
                    divisor;
  for_vectors<T>(cols, [&](auto d, std::size_t i) HWY_ATTR {
    const auto centred = hn::Sub(g(d, i), hn::Set(d, mean_g));
    const auto result = hn::NegMulAdd(normal(d, i), hn::Set(d, mean_gn), centred);
    hn::StoreU(hn::Mul(result, hn::Set(d, scale)), d, dx + i);
  });
}

// Adds a row's dy · n to dgamma and, with a dbeta, its dy to that.
template <class T>
HWY_INLINE void weight_grad_row(const NormBackward<T>& p, std::size_t row, std::size_t cols) {
  const T* dy = p.dy + row * cols;
  const T* x = p.x + row * cols;
  const T mean = p.mean != nullptr ? p.mean[row] : T(0);
  const auto add_gamma = [&](auto d, std::size_t i) HWY_ATTR {
    const auto gradient = hn::LoadU(d, dy + i);
    const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    const auto normal = hn::Mul(centred, hn::Set(d, p.scale[row]));
    hn::StoreU(hn::MulAdd(gradient, normal, hn::LoadU(d, p.dgamma + i)), d, p.dgamma + i);
    return gradient;
  };
  if (p.dbeta == nullptr) {
    for_vectors<T>(cols, [&](auto d, std::size_t i) HWY_ATTR { add_gamma(d, i); });
    return;
  }
  for_vectors<T>(cols, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(add_gamma(d, i), hn::LoadU(d, p.dbeta + i)), d, p.dbeta + i);
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

template <class T>
T* at_row(T* statistics, std::int64_t row) {
  return statistics == nullptr ? nullptr : statistics + row;
}

// Rows of 16-bit elements that are converted at a time.
std::int64_t rows_per_stage(std::int64_t cols) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(kStage) / std::max<std::int64_t>(cols, 1));
}

// Rows [begin, end) of x to y; p has the statistics and the weights of all.
template <class T>
void normalize(const Context& context, const T* x, T* y, NormForward<Compute<T>> p,
               std::int64_t begin, std::int64_t end, std::int64_t cols, double epsilon) {
  if constexpr (kIsHalf<T>) {
    const std::int64_t step = rows_per_stage(cols);
    const Workspace<float> floats(context, step * cols);
    for (std::int64_t row = begin; row < end; row += step) {
      const std::int64_t rows = std::min(step, end - row);
      const auto size = static_cast<std::size_t>(rows * cols);
      const NormForward<float> part = {stage(x + row * cols, floats.data(), size),
                                       p.gamma,
                                       p.beta,
                                       floats.data(),
                                       at_row(p.mean, row),
                                       p.scale + row};
      run_normalize(part, 0, static_cast<std::size_t>(rows), static_cast<std::size_t>(cols),
                    epsilon);
      unstage(part.y, y + row * cols, size);
    }
  } else {
    p.x = x;
    p.y = y;
    run_normalize(p, static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
                  static_cast<std::size_t>(cols), epsilon);
  }
}

// Gradients of rows [begin, end); p has the statistics, the weights and the sums of this chunk.
template <class T>
void grads(const Context& context, const T* dy, const T* x, T* dx, NormBackward<Compute<T>> p,
           std::int64_t begin, std::int64_t end, std::int64_t cols) {
  if constexpr (kIsHalf<T>) {
    const std::int64_t step = rows_per_stage(cols);
    const Workspace<float> floats(context, 2 * step * cols);
    for (std::int64_t row = begin; row < end; row += step) {
      const std::int64_t rows = std::min(step, end - row);
      const auto size = static_cast<std::size_t>(rows * cols);
      NormBackward<float> part = p;
      part.dy = stage(dy + row * cols, floats.data(), size);
      part.x = stage(x + row * cols, floats.data() + step * cols, size);
      part.mean = at_row(p.mean, row);
      part.scale = p.scale + row;
      part.dx = dx == nullptr ? nullptr : floats.data();
      run_grads(part, 0, static_cast<std::size_t>(rows), static_cast<std::size_t>(cols));
      if (dx != nullptr) unstage(part.dx, dx + row * cols, size);
    }
  } else {
    p.dy = dy;
    p.x = x;
    p.dx = dx;
    run_grads(p, static_cast<std::size_t>(begin), static_cast<std::size_t>(end),
              static_cast<std::size_t>(cols));
  }
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

  // The totals of dgamma or dbeta.
  void total(bool beta, T* out) {
    std::fill_n(out, cols_, T(0));
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const T* from = beta ? dbeta(chunk) : dgamma(chunk);
      for (std::int64_t i = 0; i < cols_; ++i) out[i] += from[i];
    }
  }

 private:
  std::int64_t chunks_, cols_;
  std::unique_ptr<T[]> sums_;
};

template <class T>
void store_sums(const Context& context, ChunkSums<Compute<T>>& sums, bool beta, const Tensor& out) {
  if (!out.defined()) return;
  for_result_dtype<T>(out, [&]<class Out>(Out) {
    const StagedResult<Out> result(context, out, /*keep=*/false);
    sums.total(beta, result.data());
    result.store();
  });
}

}  // namespace

void layer_norm(const Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                double epsilon, const Tensor& y, const Tensor& mean, const Tensor& scale) {
  const std::int64_t cols = x.dim(-1);
  for_cpu_dtype("layer_norm", x.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    const Staged<T> gammas(context, gamma);
    std::optional<Staged<T>> betas;
    if (beta.defined()) betas.emplace(context, beta);
    const NormForward<C> p = {nullptr, gammas.data(),         betas ? betas->data() : nullptr,
                              nullptr, data_or_null<C>(mean), scale.data<C>()};
    parallel_chunks(context, scale.numel(), rows_per_chunk(cols),
                    [&](std::int64_t begin, std::int64_t end) {
                      normalize(context, x.data<T>(), y.data<T>(), p, begin, end, cols, epsilon);
                    });
  });
}

void layer_norm_grad(const Context& context, const Tensor& dy, const Tensor& x, const Tensor& gamma,
                     const Tensor& mean, const Tensor& scale, const Tensor& dx,
                     const Tensor& dgamma, const Tensor& dbeta) {
  const std::int64_t rows = scale.numel();
  const std::int64_t cols = x.dim(-1);
  const std::int64_t chunk = rows_per_chunk(cols);
  for_cpu_dtype("layer_norm", x.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    const bool weights = dgamma.defined();
    ChunkSums<C> sums(weights ? (rows + chunk - 1) / chunk : 0, cols);
    const Staged<T> gammas(context, gamma);
    const NormBackward<C> all = {nullptr,         nullptr, gammas.data(), data_or_null<C>(mean),
                                 scale.data<C>(), nullptr, nullptr,       nullptr};
    parallel_chunks(context, rows, chunk, [&](std::int64_t begin, std::int64_t end) {
      NormBackward<C> part = all;
      if (weights) part.dgamma = sums.dgamma(begin / chunk);
      if (dbeta.defined()) part.dbeta = sums.dbeta(begin / chunk);
      grads(context, dy.data<T>(), x.data<T>(), data_or_null<T>(dx), part, begin, end, cols);
    });
    store_sums<T>(context, sums, /*beta=*/false, dgamma);
    store_sums<T>(context, sums, /*beta=*/true, dbeta);
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
