// The softmax cross-entropy: a block reads a row of logits once and keeps a running maximum and sum
// of exponentials. All numbers of the loss stay on the device.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/cross_entropy.h"
#include "tensor/cuda/elements.h"
#include "tensor/cuda/fault.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/row.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

constexpr const char* kName = "softmax_cross_entropy";
constexpr int kOneBlock = 512;  // threads of the kernels that run in one block
constexpr std::size_t kShared = kWarp * sizeof(double);

// Targets of either width.
struct Targets {
  const std::int32_t* narrow;  // null: wide
  const std::int64_t* wide;
  std::int64_t ignore_index;

  Targets(const Tensor& targets, std::int64_t ignored)
      : narrow(targets.dtype() == DType::kI32 ? targets.data<std::int32_t>() : nullptr),
        wide(narrow == nullptr ? targets.data<std::int64_t>() : nullptr),
        ignore_index(ignored) {}

  __device__ std::int64_t operator[](std::int64_t row) const {
    return narrow != nullptr ? narrow[row] : wide[row];
  }
};

struct Minimum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

// In one block: the number of rows that count, to `count` unless that is null, and the first target
// that is out of range to the record.
__global__ void __launch_bounds__(kOneBlock)
    check_targets(const Targets targets, const std::int64_t rows, const std::int64_t classes,
                  const Fault fault, Fault* record, double* count) {
  auto* shared = shared_memory<std::int64_t>();
  std::int64_t bad = rows, counted = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    const std::int64_t target = targets[row];
    if (target == targets.ignore_index) continue;
    ++counted;
    if ((target < 0 || target >= classes) && bad == rows) bad = row;
  }
  bad = block_reduce(bad, Minimum(), shared);
  counted = block_sum(counted, shared);
  if (threadIdx.x != 0) return;
  if (bad < rows) record_fault(*record, fault, bad, targets[bad]);
  if (count != nullptr) *count = static_cast<double>(counted);
}

std::string describe_target(const Fault& fault) {
  return "[" + std::string(kName) + "] expected targets in [0, " + std::to_string(fault.facts[0]) +
         ") or " + std::to_string(fault.facts[1]) + " for a row to ignore, got " +
         std::to_string(fault.value) + " at position " + std::to_string(fault.position);
}

void check(const Queue& queue, const Targets& targets, std::int64_t rows, std::int64_t classes,
           double* count) {
  Fault fault;
  fault.describe = describe_target;
  fault.facts[0] = classes;
  fault.facts[1] = targets.ignore_index;
  launch(synchronising(check_targets), 1, kOneBlock, kShared, queue.stream(), targets, rows,
         classes, fault, queue.faults(), count);
}

// Σ e^(x − top), and the top; what is not a number stays so.
template <class C>
struct RunningSum {
  C top = -std::numeric_limits<C>::infinity();
  C sum = 0;

  // e^(−∞ − (−∞)) would not be a number, where nothing was seen but −∞.
  static __device__ C shift(C high) {
    return high == -std::numeric_limits<C>::infinity() ? C(0) : high;
  }
  template <int kSize>
  __device__ void add(const C (&values)[kSize]) {
    C high = top;
#pragma unroll
    for (int e = 0; e < kSize; ++e) high = Maximum()(high, values[e]);
    const C base = shift(high);
    if (high != top) sum *= std::exp(top - base);
    top = high;
#pragma unroll
    for (int e = 0; e < kSize; ++e) sum += std::exp(values[e] - base);
  }
};

template <class T>
struct RowSums {
  const T* logits;
  std::int64_t classes, first;
  Compute<T>* log_sum;  // with terms, the rows' log-sum-exp less the target's logit; or null,
  double* terms;
  double* sums;  // and these: the log-sum-exp and the target's logit
};

template <class T>
__global__ void __launch_bounds__(kMostRowThreads)
    row_sums(const RowSums<T> p, const Targets targets) {
  using C = Compute<T>;
  C* shared = shared_memory<C>();
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = targets[row];
  const bool ignored = target == targets.ignore_index;
  const T* x = p.logits + row * p.classes;
  double log_sum = 0, own = 0;
  if (!ignored) {
    RunningSum<C> part;
    for_row(x, p.classes, true, [&](std::int64_t, const auto& values) { part.add(values); });
    const C top = block_reduce(part.top, Maximum(), shared);
    const C total = block_sum(part.sum * std::exp(part.top - part.shift(top)), shared);
    const std::int64_t at = target - p.first;
    if (at >= 0 && at < p.classes) own = static_cast<double>(widen(x[at]));
    log_sum = static_cast<double>(top) + std::log(static_cast<double>(total));
  }
  if (threadIdx.x != 0) return;
  if (p.sums != nullptr) {
    p.sums[2 * row] = log_sum;
    p.sums[2 * row + 1] = own;
  } else {
    p.log_sum[row] = static_cast<C>(log_sum);
    p.terms[row] = log_sum - own;
  }
}

// The same of joined parts: all is [parts, rows, 2].
template <class C>
__global__ void join_rows(const double* all, const std::int64_t parts, const std::int64_t rows,
                          const Targets targets, C* log_sum, double* terms) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  double joined = 0, own = 0;
  if (targets[row] != targets.ignore_index) {
    double top = all[2 * row], sum = 0;
    for (std::int64_t part = 1; part < parts; ++part) {
      top = Maximum()(top, all[2 * (part * rows + row)]);
    }
    for (std::int64_t part = 0; part < parts; ++part) {
      sum += std::exp(all[2 * (part * rows + row)] - top);
      own += all[2 * (part * rows + row) + 1];
    }
    joined = top + std::log(sum);
  }
  log_sum[row] = static_cast<C>(joined);
  terms[row] = joined - own;
}

// In one block: the terms' sum over the number of rows that count.
template <class C>
__global__ void __launch_bounds__(kOneBlock)
    mean_of_terms(const double* terms, const std::int64_t rows, const double* count, C* loss) {
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) sum += terms[row];
  sum = block_sum(sum, shared_memory<double>());
  if (threadIdx.x == 0) *loss = *count > 0 ? static_cast<C>(sum / *count) : C(0);
}

template <class T>
struct RowGrads {
  const T* logits;
  std::int64_t classes, first;
  const Compute<T>* log_sum;
  const Compute<T>* grad;
  const double* count;
  T* out;
  bool alike;  // rows of logits and out begin alike within 16 bytes
};

template <class T>
__global__ void __launch_bounds__(kMostRowThreads)
    row_grads(const RowGrads<T> p, const Targets targets) {
  using C = Compute<T>;
  const std::int64_t row = blockIdx.x;
  const std::int64_t target = targets[row];
  const bool counts = target != targets.ignore_index;
  const std::int64_t own = target - p.first;
  const C factor = static_cast<C>(static_cast<double>(*p.grad) / *p.count);
  const C log_sum = p.log_sum[row];
  T* out = p.out + row * p.classes;
  for_row(p.logits + row * p.classes, p.classes, p.alike, [&](std::int64_t i, auto& values) {
#pragma unroll
    for (int e = 0; e < static_cast<int>(sizeof(values) / sizeof(C)); ++e) {
      const C softmax = factor * std::exp(values[e] - log_sum);
      values[e] = !counts ? C(0) : i + e == own ? softmax - factor : softmax;
    }
    store<T>(out + i, values);
  });
}

template <class T>
void run_sums(const Context& context, const Tensor& logits, const Targets& targets,
              const RowSums<T>& p) {
  const auto rows = static_cast<unsigned>(logits.shape().rows());
  launch(synchronising(row_sums<T>), rows, row_threads<T>(p.classes), kShared,
         queue_of(context).stream(), p, targets);
}

template <class C>
void run_mean(const Queue& queue, const double* terms, std::int64_t rows, const Tensor& count,
              const Tensor& loss) {
  launch(synchronising(mean_of_terms<C>), 1, kOneBlock, kShared, queue.stream(), terms, rows,
         count.data<double>(), loss.data<C>());
}

}  // namespace

void softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& targets,
                           std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                           const Tensor& count) {
  const Targets target(targets, ignore_index);
  const std::int64_t rows = targets.numel();
  const std::int64_t classes = logits.dim(-1);
  const Queue& queue = queue_of(context);
  const cpu::Workspace<double> terms(context, std::max<std::int64_t>(rows, 1));
  check(queue, target, rows, classes, count.data<double>());
  for_cpu_dtype(kName, logits.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    run_sums<T>(context, logits, target,
                {logits.data<T>(), classes, 0, log_sum.data<C>(), terms.data(), nullptr});
    run_mean<C>(queue, terms.data(), rows, count, loss);
  });
}

void class_sums(const Context& context, const Tensor& logits, const Tensor& targets,
                const IndexPart& part, std::int64_t ignore_index, const Tensor& sums) {
  const Targets target(targets, ignore_index);
  check(queue_of(context), target, targets.numel(), part.total, nullptr);
  for_cpu_dtype(kName, logits.dtype(), [&]<class T>(T) {
    run_sums<T>(
        context, logits, target,
        {logits.data<T>(), logits.dim(-1), part.first, nullptr, nullptr, sums.data<double>()});
  });
}

void join_class_sums(const Context& context, const Tensor& all, const Tensor& targets,
                     std::int64_t ignore_index, const Tensor& log_sum, const Tensor& loss,
                     const Tensor& count) {
  const Targets target(targets, ignore_index);
  const std::int64_t rows = targets.numel();
  const Queue& queue = queue_of(context);
  const cpu::Workspace<double> terms(context, std::max<std::int64_t>(rows, 1));
  // The targets' range was checked with each part's sums; here they are only counted.
  check(queue, target, rows, std::numeric_limits<std::int64_t>::max(), count.data<double>());
  const auto run = [&]<class C>(C) {
    launch(independent(join_rows<C>), static_cast<unsigned>((rows + 127) / 128), 128, 0,
           queue.stream(), all.data<double>(), all.dim(0), rows, target, log_sum.data<C>(),
           terms.data());
    run_mean<C>(queue, terms.data(), rows, count, loss);
  };
  log_sum.dtype() == DType::kF64 ? run(double{}) : run(float{});
}

void softmax_cross_entropy_grad(const Context& context, const Tensor& logits, const Tensor& targets,
                                std::int64_t first, std::int64_t ignore_index,
                                const Tensor& log_sum, const Tensor& grad, const Tensor& count,
                                const Tensor& out) {
  const Targets target(targets, ignore_index);
  const Queue& queue = queue_of(context);
  for_cpu_dtype(kName, logits.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    const RowGrads<T> p = {logits.data<T>(),  logits.dim(-1),          first,
                           log_sum.data<C>(), grad.data<C>(),          count.data<double>(),
                           out.data<T>(),     begin_alike(logits, out)};
    launch(independent(row_grads<T>), static_cast<unsigned>(targets.numel()),
           row_threads<T>(p.classes), 0, queue.stream(), p, target);
  });
}

}  // namespace penstock::tensor::cuda
