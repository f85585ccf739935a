// penstock-bench share: how much of a GPT's training step is matrix products.
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "engine/cost_meter.h"
#include "engine/engine.h"
#include "model/data/repeating_source.h"
#include "model/data/text_source.h"
#include "model/optimizer.h"
#include "model/zoo/gpt2.h"
#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/gelu.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/norm.h"
#include "tensor/tape.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/gemm.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

using tensor::Tensor;

constexpr std::int64_t kLayers = 8;
constexpr std::int64_t kContext = 256;
constexpr std::int64_t kVocabulary = 256;
constexpr std::int64_t kTokens = 2048;  // per micro batch
constexpr std::int64_t kRows = kTokens / kContext;
constexpr std::int64_t kHeadWidth = 64;

// Forward and both backward products of y[tokens, out] = x[tokens, in]·W[in, out].
double linear_products(std::int64_t in, std::int64_t out, bool transposed_weight) {
  return gemm_seconds(kTokens, out, in, false, transposed_weight) +
         gemm_seconds(kTokens, in, out, false, !transposed_weight) +
         gemm_seconds(in, out, kTokens, true, false);
}

struct Products {
  double linears = 0.0;
  double attention = 0.0;
  double total() const { return linears + attention; }
};

// All products of one micro batch.
Products products_of(std::int64_t width) {
  Products products;
  const double block =
      linear_products(width, 3 * width, false) + linear_products(width, width, false) +
      linear_products(width, 4 * width, false) + linear_products(4 * width, width, false);
  products.linears =
      static_cast<double>(kLayers) * block + linear_products(width, kVocabulary, true);
  // Forward QKᵀ and PV; backward dV, dP, dQ, dK: six products, each at its causal half.
  const double scores = gemm_seconds(kContext, kContext, kHeadWidth, false, true);
  const double values = gemm_seconds(kContext, kHeadWidth, kContext, false, false);
  const double values_transposed = gemm_seconds(kContext, kHeadWidth, kContext, true, false);
  const double one_head = (2 * scores + 2 * values + 2 * values_transposed) / 2.0;
  products.attention = one_head * static_cast<double>(kLayers * kRows * (width / kHeadWidth));
  return products;
}

Tensor filled(tensor::Context& context, const tensor::Shape& shape) {
  Tensor result = Tensor::empty(context, shape, tensor::DType::kF32);
  std::size_t i = 0;
  for (float& value : result.span<float>()) {
    value = 0.01f * static_cast<float>(static_cast<int>(i++ * 7919 % 201) - 100);
  }
  return result;
}

// Forward and full backward of an operation on x.
double op_seconds(const tensor::Shape& shape,
                  const std::function<Tensor(tensor::Context&, const Tensor&)>& op) {
  tensor::Context context(tensor::make_cpu_allocator());
  const Tensor x = filled(context, shape);
  return median_seconds(5, [&] {
    tensor::Tape tape;
    context.tape = &tape;
    const Tensor y = op(context, tape.input(x, true));
    context.tape = nullptr;
    tape.seed(y, filled(context, y.shape()));
    tape.backward(context);
  });
}

double fill_seconds(const tensor::Shape& shape) {
  tensor::Context context(tensor::make_cpu_allocator());
  return median_seconds(5, [&] { filled(context, shape); });
}

double update_seconds(std::int64_t parameters) {
  tensor::Context context(tensor::make_cpu_allocator());
  Tensor weight = filled(context, {parameters});
  const Tensor grad = filled(context, {parameters});
  std::vector<Tensor> state = {Tensor::zeros(context, {parameters}, tensor::DType::kF32),
                               Tensor::zeros(context, {parameters}, tensor::DType::kF32)};
  const auto optimizer = model::make_optimizer(model::OptimizerKind::kAdam);
  return median_seconds(5, [&] {
    optimizer->update(context,
                      {.parameter = weight, .grad = grad, .state = state, .grad_scale = 0.5}, {});
  });
}

// The products of one micro batch while `cores` cores are busy with the same ones.
Products products_with(int cores, std::int64_t width) {
  std::vector<Products> results(static_cast<std::size_t>(cores));
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < results.size(); ++i) {
    others.emplace_back([&, i] { results[i] = products_of(width); });
  }
  results[0] = products_of(width);
  return results[0];
}

struct Step {
  double seconds = 0.0;
  double idle = 0.0;  // predicted, of all ranks together
};

Step measure_step(std::int64_t width, int ranks, const ShareOptions& options) {
  Step result;
  comm::run_local(ranks, {}, [&](comm::World& world) {
    const model::Gpt2Config gpt{.layers = kLayers,
                                .heads = width / kHeadWidth,
                                .width = width,
                                .context = kContext,
                                .vocabulary = kVocabulary};
    const engine::Config config = engine::parse_config(
        R"({"threads_per_rank": 1, "optimizer": {"type": "AdamW"},
            "pipeline": {"stages": )" +
            std::to_string(ranks) + R"(}, "train_micro_batch_size_per_gpu": )" +
            std::to_string(kRows) + R"(, "gradient_accumulation_steps": )" +
            std::to_string(options.micro_batches) + "}",
        "penstock-bench");
    std::vector<std::uint8_t> text(static_cast<std::size_t>(kTokens * options.micro_batches + 1));
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 251);
    engine::Engine engine(world, model::make_gpt2(gpt), config,
                          std::make_unique<model::RepeatingSource>(
                              std::make_unique<model::TextSource>(std::move(text), kContext)));
    engine::CostMeter meter;
    engine.add_observer(meter);
    const double seconds = median_seconds(options.repeats, [&] { engine.train_batch(); });
    const schedule::ScheduleArgs args{.ranks = ranks,
                                      .micro_batches = options.micro_batches,
                                      .rank = schedule::PipeRank(world.rank())};
    const auto no_replicas = world.all().split(world.rank(), 0);
    const schedule::Costs costs = gather_costs(
        meter, *schedule::make_schedule(config.pipeline.schedule, args), world.all(), *no_replicas);
    if (world.rank() == 0) {
      result.seconds = seconds;
      const auto pipe = schedule::make_pipe(config.pipeline.schedule, args);
      for (const auto& rank : schedule::simulate(pipe, costs).ranks) result.idle += rank.idle;
    }
    no_replicas->close();
    engine.close();
  });
  return result;
}

// Where the rest of a micro batch's time goes, measured operation by operation.
void print_rest(std::int64_t width, double step, const Products& products,
                const ShareOptions& options) {
  const tensor::Shape hidden{kRows, kContext, width};
  const auto layers = static_cast<double>(kLayers);
  const double m = options.micro_batches;
  const double hidden_fill = fill_seconds(hidden);
  const double wide_fill = fill_seconds({kRows, kContext, 4 * width});
  tensor::Context context(tensor::make_cpu_allocator());
  const Tensor gamma = filled(context, {width}), beta = filled(context, {width});
  const Tensor targets = Tensor::zeros(context, {kRows, kContext}, tensor::DType::kI32);
  std::vector<std::pair<std::string, double>> rows;
  rows.emplace_back(
      "layer norm (without weight gradients)",
      m * (2 * layers + 1) *
          (op_seconds(hidden,
                      [&](auto& c, const Tensor& x) { return layer_norm(c, x, gamma, beta); }) -
           hidden_fill));
  rows.emplace_back("GELU", m * layers *
                                (op_seconds({kRows, kContext, 4 * width},
                                            [](auto& c, const Tensor& x) { return gelu(c, x); }) -
                                 wide_fill));
  rows.emplace_back("attention beside its products",
                    m * (layers * (op_seconds({kRows, kContext, 3 * width},
                                              [&](auto& c, const Tensor& x) {
                                                return attention(c, x,
                                                                 {.heads = width / kHeadWidth,
                                                                  .kv_heads = width / kHeadWidth});
                                              }) -
                                   hidden_fill) -
                         products.attention));
  rows.emplace_back(
      "residual sums",
      m * 2 * layers *
          (op_seconds(hidden, [&](auto& c, const Tensor& x) { return add(c, x, x); }) -
           hidden_fill));
  rows.emplace_back("cross-entropy",
                    m * op_seconds({kRows, kContext, kVocabulary}, [&](auto& c, const Tensor& x) {
                      return softmax_cross_entropy(c, x, targets);
                    }));
  const std::int64_t parameters =
      kLayers * (12 * width * width + 13 * width) + (kVocabulary + kContext + 2) * width;
  rows.emplace_back("AdamW", update_seconds(parameters));
  double rest = step - m * products.total();
  Table table({"width " + std::to_string(width), "ms per step", "of the step"});
  const auto line = [&](const std::string& name, double seconds) {
    table.add({name, formatted("%.1f", seconds * 1e3), formatted("%.1f %%", 100 * seconds / step)});
  };
  line("matrix products: linear layers", m * products.linears);
  line("matrix products: attention, causal half", m * products.attention);
  for (const auto& [name, seconds] : rows) {
    line(name, seconds);
    rest -= seconds;
  }
  line("rest (biases, norms' weights, embedding, norm, slower products)", rest);
  line("step", step);
  table.print();
}

}  // namespace

void bench_share(const ShareOptions& options) {
  Table summary({"width", "ranks", "products, ms", "step, ms", "idle (predicted)", "share",
                 "GFLOP/s of products, per rank"});
  for (const std::int64_t width : options.widths) {
    for (const int ranks : {1, 2}) {
      const Products products = products_with(ranks, width);
      const Step step = measure_step(width, ranks, options);
      const double m = options.micro_batches;
      if (ranks == 1) print_rest(width, step.seconds, products, options);
      const double flops = 2.0 * 3.0 * static_cast<double>(kTokens) *
                           static_cast<double>(kLayers * 12 * width * width + width * kVocabulary);
      const double busy = ranks * step.seconds - step.idle;
      summary.add({std::to_string(width), std::to_string(ranks),
                   formatted("%.1f", m * products.total() * 1e3),
                   formatted("%.1f", step.seconds * 1e3),
                   formatted("%.1f %%", 100.0 * step.idle / (ranks * step.seconds)),
                   formatted("%.3f", m * products.total() / busy),
                   formatted("%.1f", flops / products.linears * 1e-9)});
    }
  }
  summary.print();
}

}  // namespace penstock::tools
