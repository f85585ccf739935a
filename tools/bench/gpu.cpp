#include "tools/bench/gpu.h"

#include <algorithm>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>

#include "comm/world.h"
#include "engine/engine.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "tensor/cuda/cuda.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

using tensor::Tensor;

Tensor random_tokens(std::int64_t rows, const model::Gpt2Config& gpt) {
  const tensor::Context host(tensor::make_cpu_allocator());
  std::mt19937_64 generator(1);
  std::uniform_int_distribution<std::int32_t> draw(0,
                                                   static_cast<std::int32_t>(gpt.vocabulary) - 1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows * gpt.context));
  std::ranges::generate(tokens, [&] { return draw(generator); });
  return Tensor::from<std::int32_t>(host, {rows, gpt.context}, tokens);
}

// The same tokens in each step: what they are takes no more or less time.
std::unique_ptr<model::DataSource> random_text(const model::Gpt2Config& gpt, std::int64_t rows) {
  return std::make_unique<model::RepeatingSource>(std::make_unique<model::InMemorySource>(
      std::vector{random_tokens(rows, gpt)}, std::vector{random_tokens(rows, gpt)}));
}

// Of the matrix products alone, forward and backward: 6 for each weight that multiplies, the table
// of tokens counted once, as head; and the causal half of attention, 6·L·C·T.
double flops_per_token(const model::Gpt2Config& gpt) {
  const auto layers = static_cast<double>(gpt.layers), width = static_cast<double>(gpt.width);
  const double weights = 12 * layers * width * width + static_cast<double>(gpt.vocabulary) * width;
  return 6 * weights + 6 * layers * width * static_cast<double>(gpt.context);
}

engine::Config config_of(std::int64_t rows, const GpuOptions& options) {
  return engine::parse_config(R"({"device": {"type": "cuda", "graphs": )" +
                                  std::string(options.graphs ? "true" : "false") +
                                  R"(}, "bf16": {"enabled": true},
          "optimizer": {"type": "AdamW"}, "gradient_clipping": 1.0,
          "train_micro_batch_size_per_gpu": )" +
                                  std::to_string(rows) + R"(, "gradient_accumulation_steps": )" +
                                  std::to_string(options.micro_batches) + "}",
                              "penstock-bench");
}

struct Training {
  double seconds = 0;  // of a step
  double bytes = 0;    // of the device, at most
};

Training train(const GpuModel& model, std::int64_t rows, const GpuOptions& options) {
  Training result;
  comm::run_local(1, {}, [&](comm::World& world) {
    engine::Engine engine(world, model::make_gpt2(model.config), config_of(rows, options),
                          random_text(model.config, rows * options.micro_batches));
    // Begins: kernels are loaded, memory is taken from the driver, passes are captured: the first
    // backward of a step, which overwrites gradients, in the third.
    for (int i = 0; i < (options.graphs ? 3 : 1); ++i) engine.train_batch();
    result.seconds = median_seconds(options.repeats, [&] { engine.train_batch(); });
    std::int64_t bytes = engine.memory().peak_bytes();
    if (options.graphs) bytes += engine.rank_reports()[0].graphs->bytes;
    result.bytes = static_cast<double>(bytes);
    engine.close();
  });
  return result;
}

bool is_wanted(const GpuOptions& options, const std::string& part) {
  return options.parts.empty() || std::ranges::find(options.parts, part) != options.parts.end();
}

void check_parts(const GpuOptions& options) {
  std::vector<std::string> known = {"kernels"};
  for (const GpuModel& model : options.models) known.push_back(model.name);
  for (const std::string& part : options.parts) {
    if (std::ranges::find(known, part) != known.end()) continue;
    std::string text = "gpu has no part '" + part + "'; expected one of";
    for (const std::string& name : known) text += " " + name;
    throw std::invalid_argument(text);
  }
}

}  // namespace

std::vector<GpuModel> gpt2_models() {
  return {
      {"124M", {.layers = 12, .heads = 12, .width = 768, .vocabulary = 50304}, 32},
      {"1.5B", {.layers = 48, .heads = 25, .width = 1600, .vocabulary = 50304}, 8},
  };
}

std::string share_of_peak(double flops_per_second) {
  return formatted("%.1f %%", 100 * flops_per_second / kPeakFlops);
}

void bench_gpu_training(const GpuModel& model, const GpuOptions& options) {
  const std::int64_t rows = options.rows > 0 ? options.rows : model.rows;
  const Training training = train(model, rows, options);
  const auto tokens = static_cast<double>(rows * options.micro_batches * model.config.context);
  Table table({"GPT-2 " + model.name + " in bf16, AdamW, " +
                   (options.graphs ? "CUDA graphs, " : "") + std::to_string(options.micro_batches) +
                   " micro batches of " + std::to_string(rows) + " x " +
                   std::to_string(model.config.context),
               "tokens/s", "ms per step", "of 989 TFLOP/s", "peak memory, GB"});
  table.add({"one device", formatted("%.0f", tokens / training.seconds),
             formatted("%.1f", training.seconds * 1e3),
             share_of_peak(tokens * flops_per_token(model.config) / training.seconds),
             formatted("%.1f", training.bytes * 1e-9)});
  table.print();
}

void bench_gpu(const GpuOptions& options) {
  check_parts(options);
  if (tensor::cuda::device_count() == 0) {
    throw std::runtime_error(
        "gpu: this process sees no CUDA device, so nothing was measured; see what nvidia-smi "
        "lists, what CUDA_VISIBLE_DEVICES hides, and whether the build has PENSTOCK_CUDA");
  }
  if (is_wanted(options, "kernels")) bench_gpu_kernels(options.kernels, options.repeats);
  for (const GpuModel& model : options.models) {
    if (is_wanted(options, model.name)) bench_gpu_training(model, options);
  }
}

}  // namespace penstock::tools
