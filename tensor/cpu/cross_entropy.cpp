#include "tensor/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "tensor/cpu/staged.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/maths-inl.h"

HWY_BEFORE_NAMESPACE();
namespace penstock::tensor::cpu::HWY_NAMESPACE {

template <class T>
T row_max(const T* x, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  auto top = hn::Set(d, -std::numeric_limits<T>::infinity());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) top = hn::Max(top, hn::LoadU(d, x + i));
  T result = hn::GetLane(hn::MaxOfLanes(d, top));
  for (; i < n; ++i) result = std::max(result, x[i]);
  return result;
}

// log Σ e^x, by way of the largest x. The sum is made in blocks, so that its rounding error does
// not grow with the vocabulary. A NaN anywhere gives NaN: the sum sees every element.
template <class T>
double row_log_sum(const T* x, std::size_t n) {
  constexpr std::size_t kBlock = 64;  // vectors
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const T top = row_max(x, n);
  const auto shift = hn::Set(d, top);
  auto total = hn::Zero(d);
  std::size_t i = 0;
  while (i + lanes <= n) {
    auto block = hn::Zero(d);
    for (std::size_t v = 0; v < kBlock && i + lanes <= n; ++v, i += lanes) {
      block = hn::Add(block, exp(d, hn::Sub(hn::LoadU(d, x + i), shift)));
    }
    total = hn::Add(total, block);
  }
  double sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, total)));
  for (; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - static_cast<double>(top));
  return static_cast<double>(top) + std::log(sum);
}

// out = factor · e^(x − log_sum)
template <class T>
void row_grad(const T* x, std::size_t n, T log_sum, T factor, T* out) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const V shift = hn::Set(D(), log_sum);
  const V scale = hn::Set(D(), factor);
  map(
      n, out, [=](D d, V v) HWY_ATTR { return hn::Mul(scale, exp(d, hn::Sub(v, shift))); }, x);
}

double log_sum_f32(const float* x, std::size_t n) {
  return row_log_sum(x, n);
}
double log_sum_f64(const double* x, std::size_t n) {
  return row_log_sum(x, n);
}
void grad_f32(const float* x, std::size_t n, float log_sum, float factor, float* out) {
  row_grad(x, n, log_sum, factor, out);
}
void grad_f64(const double* x, std::size_t n, double log_sum, double factor, double* out) {
  row_grad(x, n, log_sum, factor, out);
}

}  // namespace penstock::tensor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::tensor::cpu {

HWY_EXPORT(log_sum_f32);
HWY_EXPORT(log_sum_f64);
HWY_EXPORT(grad_f32);
HWY_EXPORT(grad_f64);

namespace {

constexpr const char* kName = "softmax_cross_entropy";

double run_log_sum(const float* x, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(log_sum_f32)(x, n);
}
double run_log_sum(const double* x, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(log_sum_f64)(x, n);
}
void run_grad(const float* x, std::size_t n, float log_sum, float factor, float* out) {
  HWY_DYNAMIC_DISPATCH(grad_f32)(x, n, log_sum, factor, out);
}
void run_grad(const double* x, std::size_t n, double log_sum, double factor, double* out) {
  HWY_DYNAMIC_DISPATCH(grad_f64)(x, n, log_sum, factor, out);
}

// Targets of either width.
class Targets {
 public:
  Targets(const Tensor& targets, std::int64_t ignore_index)
      : narrow_(targets.dtype() == DType::kI32 ? targets.data<std::int32_t>() : nullptr),
        wide_(narrow_ == nullptr ? targets.data<std::int64_t>() : nullptr),
        ignore_index_(ignore_index) {}

  std::int64_t operator[](std::int64_t row) const {
    return narrow_ != nullptr ? narrow_[row] : wide_[row];
  }
  bool ignored(std::int64_t row) const { return (*this)[row] == ignore_index_; }

  // The number of rows that count, once all are known to be in range.
  std::int64_t check(std::int64_t rows, std::int64_t classes) const {
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      if (ignored(row)) continue;
      ++count;
      const std::int64_t target = (*this)[row];
      if (target >= 0 && target < classes) continue;
      throw_invalid(kName,
                    "targets in [0, " + std::to_string(classes) + ") or " +
                        std::to_string(ignore_index_) + " for a row to ignore",
                    std::to_string(target) + " at position " + std::to_string(row));
    }
    return count;
  }

 private:
  const std::int32_t* narrow_;
  const std::int64_t* wide_;
  std::int64_t ignore_index_;
};

std::int64_t rows_per_chunk(std::int64_t classes) {
  constexpr std::int64_t kChunk = 1 << 14;  // elements that one thread takes at a time
  return std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(classes, 1));
}

void store_mean(double total, std::int64_t counted, const Tensor& loss, const Tensor& count) {
  *count.data<double>() = static_cast<double>(counted);
  const double mean = counted == 0 ? 0.0 : total / static_cast<double>(counted);
  if (loss.dtype() == DType::kF64) {
    *loss.data<double>() = mean;
  } else {
    *loss.data<float>() = static_cast<float>(mean);
  }
}

// Of one row, what class_sums gives, joined over the parts in their order. A NaN anywhere gives
// NaN.
struct JoinedRow {
  double log_sum = 0.0;
  double target = 0.0;
};

JoinedRow join(const double* all, std::int64_t row, std::int64_t rows, std::int64_t parts) {
  JoinedRow result;
  double top = all[2 * row];
  for (std::int64_t part = 0; part < parts; ++part) {
    top = std::max(top, all[2 * (part * rows + row)]);
  }
  double sum = 0.0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const double* own = all + 2 * (part * rows + row);
    sum += std::exp(own[0] - top);
    result.target += own[1];
  }
  result.log_sum = top + std::log(sum);
  return result;
}

}  // namespace

void softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& targets,
                           std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                           const Tensor& count) {
  const Targets target(targets, ignore_index);
  const std::int64_t rows = targets.numel();
  const std::int64_t classes = logits.dim(-1);
  const std::int64_t counted = target.check(rows, classes);
  const std::int64_t chunk = rows_per_chunk(classes);
  std::vector<double> partial(static_cast<std::size_t>((rows + chunk - 1) / chunk));
  for_cpu_dtype(kName, logits.dtype(), [&]<class T>(T) {
    const T* x = logits.data<T>();
    Compute<T>* sums = log_sum.data<Compute<T>>();
    parallel_chunks(context, rows, chunk, [&](std::int64_t begin, std::int64_t end) {
      const StageBuffer<T> buffer(context, classes);
      double& total = partial[static_cast<std::size_t>(begin / chunk)];
      for (std::int64_t row = begin; row < end; ++row) {
        sums[row] = 0;
        if (target.ignored(row)) continue;
        const auto size = static_cast<std::size_t>(classes);
        const Compute<T>* from = stage(x + row * classes, buffer.data(), size);
        const double sum = run_log_sum(from, size);
        sums[row] = static_cast<Compute<T>>(sum);
        total += sum - static_cast<double>(from[target[row]]);
      }
    });
  });
  store_mean(std::accumulate(partial.begin(), partial.end(), 0.0), counted, loss, count);
}

void class_sums(const Context& context, const Tensor& logits, const Tensor& targets,
                const IndexPart& part, std::int64_t ignore_index, const Tensor& sums) {
  const Targets target(targets, ignore_index);
  const std::int64_t rows = targets.numel();
  const std::int64_t classes = logits.dim(-1);
  target.check(rows, part.total);
  double* to = sums.data<double>();
  for_cpu_dtype(kName, logits.dtype(), [&]<class T>(T) {
    const T* x = logits.data<T>();
    const auto run = [&](std::int64_t begin, std::int64_t end) {
      const StageBuffer<T> buffer(context, classes);
      for (std::int64_t row = begin; row < end; ++row) {
        to[2 * row] = to[2 * row + 1] = 0.0;
        if (target.ignored(row)) continue;
        const Compute<T>* from =
            stage(x + row * classes, buffer.data(), static_cast<std::size_t>(classes));
        to[2 * row] = run_log_sum(from, static_cast<std::size_t>(classes));
        const std::int64_t own = target[row] - part.first;
        if (own >= 0 && own < classes) to[2 * row + 1] = static_cast<double>(from[own]);
      }
    };
    parallel_chunks(context, rows, rows_per_chunk(classes), run);
  });
}

void join_class_sums(const Context&, const Tensor& all, const Tensor& targets,
                     std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                     const Tensor& count) {
  const Targets target(targets, ignore_index);
  const std::int64_t rows = targets.numel();
  std::int64_t counted = 0;
  double total = 0.0;
  const auto run = [&]<class C>(C) {
    for (std::int64_t row = 0; row < rows; ++row) {
      JoinedRow found;
      if (!target.ignored(row)) {
        found = join(all.data<double>(), row, rows, all.dim(0));
        ++counted;
      }
      log_sum.data<C>()[row] = static_cast<C>(found.log_sum);
      total += found.log_sum - found.target;
    }
  };
  log_sum.dtype() == DType::kF64 ? run(double{}) : run(float{});
  store_mean(total, counted, loss, count);
}

void softmax_cross_entropy_grad(const Context& context, const Tensor& logits, const Tensor& targets,
                                std::int64_t first, std::int64_t ignore_index,
                                const Tensor& log_sum, const Tensor& grad_of_mean,
                                const Tensor& count, const Tensor& out) {
  const Targets target(targets, ignore_index);
  const std::int64_t classes = logits.dim(-1);
  const double counted = *count.data<double>();
  const double factor = counted > 0 ? grad_of_mean.item() / counted : 0.0;
  for_cpu_dtype(kName, logits.dtype(), [&]<class T>(T) {
    const T* x = logits.data<T>();
    const Compute<T>* sums = log_sum.data<Compute<T>>();
    T* to = out.data<T>();
    const auto scale = static_cast<Compute<T>>(factor);
    const auto size = static_cast<std::size_t>(classes);
    parallel_chunks(context, targets.numel(), rows_per_chunk(classes),
                    [&](std::int64_t begin, std::int64_t end) {
                      const StageBuffer<T> buffer(context, classes);
                      for (std::int64_t row = begin; row < end; ++row) {
                        T* row_out = to + row * classes;
                        if (target.ignored(row)) {
                          std::fill_n(row_out, classes, T());
                          continue;
                        }
                        const Compute<T>* from = stage(x + row * classes, buffer.data(), size);
                        Compute<T>* grad = stage_result(row_out, buffer.data());
                        run_grad(from, size, sums[row], scale, grad);
                        const std::int64_t own = target[row] - first;
                        if (own >= 0 && own < classes) grad[own] -= scale;
                        unstage(grad, row_out, size);
                      }
                    });
  });
}

}  // namespace penstock::tensor::cpu
#endif  // HWY_ONCE
