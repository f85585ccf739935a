// The optimizers as rules for one element, with the operations that cpu/optim.cpp fuses fused too.
#include <cmath>
#include <type_traits>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/optim.h"
#include "tensor/cuda/optim_list.h"

namespace penstock::tensor::cuda {

namespace {

template <class C>
struct PlainSgd {
  static constexpr bool kGrad = true, kWrites = true, kWritesStates = false, kSums = false;
  static constexpr int kStates = 0;
  C scale, decay, step;

  explicit PlainSgd(const SgdFactors& f)
      : scale(C(f.grad_scale)), decay(C(f.decay)), step(C(f.step)) {}
  __device__ C operator()(C, C g, C& p, C&, C&) const {
    p = std::fma(std::fma(p, decay, g * scale), step, p);
    return 0;
  }
};

template <class C>
struct MomentumSgd {
  static constexpr bool kGrad = true, kWrites = true, kWritesStates = true, kSums = false;
  static constexpr int kStates = 1;
  C scale, decay, keep, add, ahead, step;

  explicit MomentumSgd(const SgdFactors& f)
      : scale(C(f.grad_scale)),
        decay(C(f.decay)),
        keep(C(f.keep)),
        add(C(f.add)),
        ahead(C(f.ahead)),
        step(C(f.step)) {}
  __device__ C operator()(C, C g, C& p, C& buffer, C&) const {
    const C now = std::fma(p, decay, g * scale);
    C next = now * add;
    if (keep != 0) next = std::fma(buffer, keep, next);
    buffer = next;
    if (ahead != 0) next = std::fma(next, ahead, now);
    p = std::fma(next, step, p);
    return 0;
  }
};

template <class C>
struct Adam {
  static constexpr bool kGrad = true, kWrites = true, kWritesStates = true, kSums = false;
  static constexpr int kStates = 2;
  C scale, decay, shrink, one_minus_beta1, beta2, one_minus_beta2, root_c2, eps, step;

  explicit Adam(const AdamFactors& f)
      : scale(C(f.grad_scale)),
        decay(C(f.decay)),
        shrink(C(f.shrink)),
        one_minus_beta1(C(f.one_minus_beta1)),
        beta2(C(f.beta2)),
        one_minus_beta2(C(f.one_minus_beta2)),
        root_c2(C(f.root_c2)),
        eps(C(f.eps)),
        step(C(f.step)) {}
  __device__ C operator()(C, C grad, C& p, C& m, C& v) const {
    const C g = std::fma(p, decay, grad * scale);
    m = std::fma(one_minus_beta1, g - m, m);
    v = std::fma(g * g, one_minus_beta2, v * beta2);
    const C denominator = std::sqrt(v) / root_c2 + eps;
    p = std::fma(step, m / denominator, p * shrink);
    return 0;
  }
};

template <class C>
struct Lion {
  static constexpr bool kGrad = true, kWrites = true, kWritesStates = true, kSums = false;
  static constexpr int kStates = 1;
  C scale, shrink, one_minus_beta1, one_minus_beta2, step;

  explicit Lion(const LionFactors& f)
      : scale(C(f.grad_scale)),
        shrink(C(f.shrink)),
        one_minus_beta1(C(f.one_minus_beta1)),
        one_minus_beta2(C(f.one_minus_beta2)),
        step(C(f.step)) {}
  __device__ C operator()(C, C grad, C& p, C& m, C&) const {
    const C change = grad * scale - m;
    const C mixed = std::fma(one_minus_beta1, change, m);
    // Not a number stays one, though its sign would hide it.
    const C move = mixed > 0 ? -step : mixed < 0 ? step : mixed == 0 ? C(0) : mixed;
    p = std::fma(p, shrink, move);
    m = std::fma(one_minus_beta2, change, m);
    return 0;
  }
};

template <class C>
__device__ __forceinline__ C lamb_direction(C p, C m, C v, C eps, C decay) {
  return std::fma(p, decay, m / (std::sqrt(v) + eps));
}

template <class C>
struct LambMoments {
  static constexpr bool kGrad = true, kWrites = false, kWritesStates = true, kSums = true;
  static constexpr int kStates = 2;
  C scale, decay, one_minus_beta1, beta2, one_minus_beta2, eps;

  explicit LambMoments(const LambFactors& f)
      : scale(C(f.grad_scale)),
        decay(C(f.decay)),
        one_minus_beta1(C(f.one_minus_beta1)),
        beta2(C(f.beta2)),
        one_minus_beta2(C(f.one_minus_beta2)),
        eps(C(f.eps)) {}
  __device__ C operator()(C, C grad, C& p, C& m, C& v) const {
    const C g = grad * scale;
    m = std::fma(one_minus_beta1, g - m, m);
    v = std::fma(g * g, one_minus_beta2, v * beta2);
    return lamb_direction(p, m, v, eps, decay);
  }
};

template <class C>
struct LambApply {
  static constexpr bool kGrad = false, kWrites = true, kWritesStates = false, kSums = false;
  static constexpr int kStates = 2;
  C decay, eps;

  explicit LambApply(const LambFactors& f) : decay(C(f.decay)), eps(C(f.eps)) {}
  __device__ C operator()(C step, C, C& p, C& m, C& v) const {
    p = std::fma(step, lamb_direction(p, m, v, eps, decay), p);
    return 0;
  }
};

// Adds up the sums of an item's blocks, in their order: a block for each item.
__global__ void __launch_bounds__(kListThreads)
    add_block_sums(const List list, const unsigned blocks, const double* from, double* to) {
  const unsigned begin = list.items[blockIdx.x].first_block;
  const bool last = static_cast<int>(blockIdx.x) + 1 == list.count;
  const unsigned end = last ? blocks : list.items[blockIdx.x + 1].first_block;
  for (int i = 0; i < 2; ++i) {
    double sum = 0;
    for (unsigned block = begin + threadIdx.x; block < end; block += kListThreads) {
      sum += from[2 * block + i];
    }
    sum = block_sum(sum, shared_memory<double>());
    if (threadIdx.x == 0) to[2 * blockIdx.x + i] = sum;
  }
}

constexpr std::size_t kShared = kWarp * sizeof(double);

// Calls run(list, blocks, first parameter) for the parameters of one dtype, as many at a time as a
// list has room for.
template <class Run>
void for_lists(ParameterList parameters, DType dtype, std::span<const double> steps,
               const Run& run) {
  List list{};
  std::vector<std::size_t> indices;
  unsigned blocks = 0;
  const auto flush = [&] {
    if (list.count > 0) run(list, blocks, indices);
    list = {};
    blocks = 0;
    indices.clear();
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterTensors& p = parameters[i];
    if (p.parameter.dtype() != dtype || p.parameter.numel() == 0) continue;
    ListItem& item = list.items[list.count++];
    item = item_of(p, blocks);
    if (!steps.empty()) item.step = steps[i];
    const std::int64_t groups = (item.size - item.head) / kGroup;
    blocks += static_cast<unsigned>(
        std::max<std::int64_t>((groups + kBlockGroups - 1) / kBlockGroups, 1));
    indices.push_back(i);
    if (list.count == kListItems) flush();
  }
  flush();
}

template <template <class> class Rule, class Factors>
void run_lists(const Context& context, ParameterList parameters, const Factors& factors,
               std::span<const double> steps = {}) {
  const Queue& queue = queue_of(context);
  const auto run = [&]<class C>(C) {
    for_lists(parameters, dtype_of<C>(), steps,
              [&](const List& list, unsigned blocks, const std::vector<std::size_t>&) {
                launch(independent(update_list<C, Rule<C>>), blocks, kListThreads, 0,
                       queue.stream(), list, Rule<C>(factors), nullptr);
              });
  };
  run(float{});
  run(double{});
}

}  // namespace

void sgd(const Context& context, ParameterList parameters, bool momentum,
         const SgdFactors& factors) {
  momentum ? run_lists<MomentumSgd>(context, parameters, factors)
           : run_lists<PlainSgd>(context, parameters, factors);
}

void adam(const Context& context, ParameterList parameters, const AdamFactors& factors) {
  run_lists<Adam>(context, parameters, factors);
}

void lion(const Context& context, ParameterList parameters, const LionFactors& factors) {
  run_lists<Lion>(context, parameters, factors);
}

void lamb_moments(const Context& context, ParameterList parameters, const LambFactors& factors,
                  std::span<LambSums> sums) {
  if (parameters.empty()) return;
  const Queue& queue = queue_of(context);
  const cpu::Workspace<double> totals(context, 2 * static_cast<std::int64_t>(parameters.size()));
  std::vector<std::size_t> order;  // of the parameters in totals
  const auto run = [&]<class C>(C) {
    for_lists(parameters, dtype_of<C>(), {},
              [&](const List& list, unsigned blocks, const std::vector<std::size_t>& indices) {
                const cpu::Workspace<double> parts(context, 2 * std::int64_t{blocks});
                launch(synchronising(update_list<C, LambMoments<C>>), blocks, kListThreads, kShared,
                       queue.stream(), list, LambMoments<C>(factors), parts.data());
                launch(synchronising(add_block_sums), static_cast<unsigned>(list.count),
                       kListThreads, kShared, queue.stream(), list, blocks, parts.data(),
                       totals.data() + 2 * order.size());
                order.insert(order.end(), indices.begin(), indices.end());
              });
  };
  run(float{});
  run(double{});
  std::vector<LambSums> found(order.size());
  context.allocator->download(std::as_writable_bytes(std::span(found)), totals.data());
  for (std::size_t i = 0; i < order.size(); ++i) sums[order[i]] = found[i];
}

void lamb_apply(const Context& context, ParameterList parameters, const LambFactors& factors,
                std::span<const double> steps) {
  run_lists<LambApply>(context, parameters, factors, steps);
}

}  // namespace penstock::tensor::cuda
