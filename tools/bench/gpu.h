// penstock-bench gpu: what is measured, in sizes that a test can make small.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/zoo/gpt2.h"

namespace penstock::tools {

// A GPT whose training is timed.
struct GpuModel {
  std::string name;
  model::Gpt2Config config;
  std::int64_t rows = 1;  // of a micro batch: what fits a device of 80 GB with room to spare
};

// GPT-2 of 124M and of 1.5B weights, for sequences of 1024 tokens. The vocabulary is 50304, the
// next multiple of 64: products of odd sizes are not what tensor cores are made for.
std::vector<GpuModel> gpt2_models();

// Tensors that the kernels are timed with, each several times as large as a device's cache.
struct GpuKernelSizes {
  std::int64_t rows = 32768, width = 4096;             // of norms, GELU and sums
  std::int64_t loss_rows = 4096, classes = 50304;      // of the cross-entropy
  std::int64_t weights = std::int64_t{1} << 26;        // of an update
  std::int64_t factor = 8192;                          // of a square product
  std::int64_t batch = 16, tokens = 1024, heads = 25;  // of attention, with 64 numbers a head
  int calls = 20;                                      // in a row, for one time
};

struct GpuOptions {
  int micro_batches = 4;
  int repeats = 3;
  bool graphs = false;                  // passes are replayed as CUDA graphs
  std::int64_t rows = 0;                // instead of the model's own; 0: those
  std::vector<std::string> parts = {};  // "kernels", names of models; empty: all
  std::vector<GpuModel> models = gpt2_models();
  GpuKernelSizes kernels;
};

// On one NVIDIA device: bandwidth of the fused kernels beside a copy, rate of the products, and
// steps of the models in bf16 with AdamW and f32 masters, as tokens per second and as share of the
// peak. Throws std::runtime_error where there is no device, std::invalid_argument for a part that
// there is not.
void bench_gpu(const GpuOptions& options);

void bench_gpu_kernels(const GpuKernelSizes& sizes, int repeats);
void bench_gpu_training(const GpuModel& model, const GpuOptions& options);

// Of dense bf16 products, by the vendor's data sheet for H100 and H200 (SXM).
inline constexpr double kPeakFlops = 989e12;

// The share of that peak that so many operations a second are, such as "41.2 %".
std::string share_of_peak(double flops_per_second);

}  // namespace penstock::tools
