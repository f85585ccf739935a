// Kernels of one device: those that move memory beside a copy, and those that multiply.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/cuda/cuda.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/gelu.h"
#include "tensor/ops/init.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/norm.h"
#include "tensor/ops/optim.h"
#include "tensor/ops/reduce.h"
#include "tensor/tape.h"
#include "tools/bench/gpu.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

using tensor::Context;
using tensor::DType;
using tensor::GradSlot;
using tensor::Tape;
using tensor::Tensor;

// An operation with a backward: makes a result of x, which is on the tape.
using Operation = std::function<Tensor(Context&, Tape&, const Tensor& x)>;

constexpr std::int64_t kHead = 64;

double bytes_of(const Tensor& tensor) {
  return static_cast<double>(tensor.nbytes());
}

// The tensors, and the clock.
class Device {
 public:
  Device(const GpuKernelSizes& sizes, int repeats)
      : sizes_(sizes), repeats_(repeats), context_(tensor::cuda::make_cuda_allocator({})) {
    context_.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }

  Context& context() { return context_; }
  const GpuKernelSizes& sizes() const { return sizes_; }

  Tensor random(const tensor::Shape& shape, DType dtype) {
    Tensor result = Tensor::empty(context_, shape, dtype);
    init_uniform(context_, result, {.seed = 1, .parameter = next_++}, -1, 1);
    return result;
  }

  // Seconds of a call that queues work, of many in a row; `prepare` queues what is not timed.
  double seconds(
      const std::function<void()>& run, const std::function<void()>& prepare = [] {}) {
    std::vector<double> all;
    for (int i = 0; i <= repeats_; ++i) {
      prepare();
      wait();
      const auto begin = std::chrono::steady_clock::now();
      for (int call = 0; call < sizes_.calls; ++call) run();
      wait();
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      if (i > 0) all.push_back(passed.count() / sizes_.calls);  // the first is not counted
    }
    return median(std::move(all));
  }

  double forward_seconds(const Operation& operation, const Tensor& x) {
    return seconds([&] {
      Tape tape;
      operation(context_, tape, x);
    });
  }

  // Of the backward alone: as many forwards as will be timed are recorded ahead.
  double backward_seconds(const Operation& operation, const Tensor& x) {
    std::vector<Tape> tapes;
    std::size_t next = 0;
    const auto record = [&] {
      tapes = std::vector<Tape>(static_cast<std::size_t>(sizes_.calls));
      next = 0;
      for (Tape& tape : tapes) {
        context_.tape = &tape;
        const Tensor y = operation(context_, tape, tape.input(x, true));
        context_.tape = nullptr;
        if (!seed_.defined() || !(seed_.shape() == y.shape())) seed_ = random(y.shape(), y.dtype());
        tape.seed(y, seed_);
      }
    };
    const double result = seconds(
        [&] {
          tapes[next].backward(context_);
          tapes[next++].reset();  // its memory serves the next one
        },
        record);
    seed_ = {};
    return result;
  }

 private:
  void wait() {
    if (const auto done = context_.allocator->fence()) done->wait();
  }

  GpuKernelSizes sizes_;
  int repeats_;
  Context context_;
  Tensor seed_;
  std::uint32_t next_ = 0;
};

// Fewest bytes: each input read once, each result written once.
struct Traffic {
  std::string name;
  double bytes;
  double seconds;
};

Traffic copy_traffic(Device& device, const Tensor& x) {
  const Tensor to = Tensor::empty(device.context(), x.shape(), x.dtype());
  return {"device copy", 2 * bytes_of(x),
          device.seconds([&] { device.context().allocator->copy(to.raw(), x.raw(), x.nbytes()); })};
}

// Of an operation whose result is like x: forward reads x and writes the result, backward reads x
// and the gradient and writes the other one.
void add_both(Device& device, const std::string& name, const Operation& operation, const Tensor& x,
              std::vector<Traffic>& all) {
  all.push_back({name + ", forward", 2 * bytes_of(x), device.forward_seconds(operation, x)});
  all.push_back({name + ", backward", 3 * bytes_of(x), device.backward_seconds(operation, x)});
}

void add_elementwise(Device& device, const Tensor& x, std::vector<Traffic>& all) {
  const tensor::Shape weight{device.sizes().width};
  const Tensor gamma = device.random(weight, x.dtype()), beta = device.random(weight, x.dtype());
  GradSlot gamma_slot{Tensor::zeros(device.context(), weight, DType::kF32)};
  GradSlot beta_slot{Tensor::zeros(device.context(), weight, DType::kF32)};
  add_both(
      device, "layer norm",
      [&](Context& c, Tape& tape, const Tensor& in) {
        return layer_norm(c, in, tape.weight(gamma, &gamma_slot), tape.weight(beta, &beta_slot));
      },
      x, all);
  add_both(
      device, "GELU", [](Context& c, Tape&, const Tensor& in) { return gelu(c, in); }, x, all);
  const Tensor other = device.random(x.shape(), x.dtype());
  all.push_back(
      {"residual sum", 3 * bytes_of(x), device.seconds([&] { add(device.context(), x, other); })});
}

void add_loss(Device& device, std::vector<Traffic>& all) {
  const GpuKernelSizes& sizes = device.sizes();
  const Tensor logits = device.random({sizes.loss_rows, sizes.classes}, DType::kBF16);
  const Tensor targets = Tensor::zeros(device.context(), {sizes.loss_rows}, DType::kI32);
  const Operation loss = [&](Context& c, Tape&, const Tensor& in) {
    return softmax_cross_entropy(c, in, targets);
  };
  all.push_back(
      {"softmax cross-entropy, forward", bytes_of(logits), device.forward_seconds(loss, logits)});
  all.push_back({"softmax cross-entropy, backward", 2 * bytes_of(logits),
                 device.backward_seconds(loss, logits)});
}

void add_update(Device& device, std::vector<Traffic>& all) {
  const tensor::Shape shape{device.sizes().weights};
  Context& context = device.context();
  const Tensor grad = device.random(shape, DType::kF32);
  tensor::ParameterTensors one{
      device.random(shape, DType::kF32), grad, Tensor::zeros(context, shape, DType::kF32),
      Tensor::zeros(context, shape, DType::kF32), Tensor::empty(context, shape, DType::kBF16)};
  const Tensor squares = Tensor::zeros(context, {}, DType::kF64);
  all.push_back({"norm of gradients", bytes_of(grad),
                 device.seconds([&] { sum_squares(context, grad, squares); })});
  // Reads weight, gradient and two moments, and writes all but the gradient, rounded too.
  all.push_back(
      {"AdamW with f32 masters", 7 * bytes_of(grad) + bytes_of(one.rounded), device.seconds([&] {
         adam_update(context, {&one, 1}, {.decoupled = true}, 1, 1.0);
       })});
}

void print_traffic(Device& device) {
  const Tensor x = device.random({device.sizes().rows, device.sizes().width}, DType::kBF16);
  std::vector<Traffic> all = {copy_traffic(device, x)};
  add_elementwise(device, x, all);
  add_loss(device, all);
  add_update(device, all);
  Table table({"kernels that move memory", "GB/s", "of a device copy"});
  const double copy = all.front().bytes / all.front().seconds;
  for (const Traffic& each : all) {
    const double rate = each.bytes / each.seconds;
    table.add({each.name, formatted("%.0f", rate * 1e-9), formatted("%.2f", rate / copy)});
  }
  table.print();
}

void print_products(Device& device) {
  const GpuKernelSizes& sizes = device.sizes();
  Table table({"kernels that multiply, bf16", "TFLOP/s", "of 989"});
  const auto add_row = [&](const std::string& name, double flops, double seconds) {
    table.add({name, formatted("%.1f", flops / seconds * 1e-12), share_of_peak(flops / seconds)});
  };
  const auto n = static_cast<double>(sizes.factor);
  const Tensor a = device.random({sizes.factor, sizes.factor}, DType::kBF16);
  const Tensor b = device.random(a.shape(), DType::kBF16);
  add_row("product of " + std::to_string(sizes.factor) + "^3", 2 * n * n * n,
          device.seconds([&] { matmul(device.context(), a, b); }));

  const tensor::AttentionShape shape{.heads = sizes.heads, .kv_heads = sizes.heads};
  const Tensor qkv =
      device.random({sizes.batch, sizes.tokens, 3 * sizes.heads * kHead}, DType::kBF16);
  const Operation causal = [&](Context& c, Tape&, const Tensor& in) {
    return attention(c, in, shape);
  };
  // The half of one product of tokens by tokens that causality leaves.
  const auto tokens = static_cast<double>(sizes.tokens);
  const double product = static_cast<double>(sizes.batch * sizes.heads * kHead) * tokens * tokens;
  add_row("attention, forward", 2 * product, device.forward_seconds(causal, qkv));
  add_row("attention, backward", 5 * product, device.backward_seconds(causal, qkv));
  table.print();
}

}  // namespace

void bench_gpu_kernels(const GpuKernelSizes& sizes, int repeats) {
  Device device(sizes, repeats);
  print_traffic(device);
  print_products(device);
}

}  // namespace penstock::tools
