// penstock-bench gpu on an emulated device, in tiny sizes: all that it prints is there and counts
// what it says; the times themselves mean nothing.
#include <cctype>
#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda_emulation/emulation.h"
#include "tests/support/cuda_devices.h"
#include "tools/bench/gpu.h"

namespace penstock::tools {
namespace {

constexpr GpuKernelSizes kTinyKernels = {.rows = 20,
                                         .width = 64,
                                         .loss_rows = 8,
                                         .classes = 40,
                                         .weights = 1000,
                                         .factor = 32,
                                         .batch = 1,
                                         .tokens = 16,
                                         .heads = 2,
                                         .calls = 2};

GpuOptions tiny_options() {
  return {.micro_batches = 2,
          .repeats = 1,
          .models = {{"tiny",
                      {.layers = 2, .heads = 2, .width = 16, .context = 8, .vocabulary = 64},
                      2}},
          .kernels = kTinyKernels};
}

// Numbers of each line of a table, by what the line begins with.
std::map<std::string, std::vector<double>> run(const GpuOptions& options) {
  std::string error;
  ::testing::internal::CaptureStdout();
  try {
    bench_gpu(options);
  } catch (const std::exception& caught) {
    error = caught.what();
  }
  std::istringstream text(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(error, "");
  std::map<std::string, std::vector<double>> result;
  for (std::string line; std::getline(text, line);) {
    const std::size_t end = line.find("  ");
    if (end == std::string::npos) continue;
    std::istringstream cells(line.substr(end));
    std::vector<double>& numbers = result[line.substr(0, end)];
    for (std::string cell; cells >> cell;) {
      if (std::isdigit(static_cast<unsigned char>(cell[0]))) numbers.push_back(std::stod(cell));
    }
  }
  return result;
}

class BenchGpu : public ::testing::Test {
 protected:
  void SetUp() override { testing::start_devices(); }
  void TearDown() override { EXPECT_EQ(testing::finish_devices(), ""); }
};

TEST_F(BenchGpu, KernelsAreTimedForwardAndBackward) {
  GpuOptions options = tiny_options();
  options.parts = {"kernels"};
  const auto lines = run(options);
  for (const char* name :
       {"device copy", "layer norm, forward", "layer norm, backward", "GELU, forward",
        "GELU, backward", "residual sum", "softmax cross-entropy, forward",
        "softmax cross-entropy, backward", "norm of gradients", "AdamW with f32 masters",
        "product of 32^3", "attention, forward", "attention, backward"}) {
    ASSERT_TRUE(lines.contains(name)) << name;
    EXPECT_EQ(lines.at(name).size(), 2U) << name;
  }
  EXPECT_EQ(lines.at("device copy")[1], 1.0);
  // The kernels that are timed are those that bf16 training runs, as often as is said: two times
  // the calls, the first of which is not counted.
  const auto launches = cuda_emulation::counters().launches;
  const auto count = [&](const std::string& kernel) {
    std::int64_t total = 0;
    for (const auto& [name, times] : launches) {
      if (name.starts_with(kernel)) total += times;
    }
    return total;
  };
  EXPECT_EQ(count("key_grads<"), 4);
  EXPECT_EQ(count("query_grads<"), 4);
  EXPECT_EQ(count("input_grad<"), 4);
  EXPECT_EQ(count("row_grads<"), 4);
  EXPECT_EQ(count("update_list<"), 4);
}

TEST_F(BenchGpu, ModelsAreTrained) {
  GpuOptions options = tiny_options();
  options.parts = {"tiny"};
  const auto lines = run(options);
  ASSERT_TRUE(lines.contains("one device"));
  const std::vector<double>& numbers = lines.at("one device");
  ASSERT_EQ(numbers.size(), 4U);
  constexpr double kTokens = 2 * 2 * 8;  // of a step
  EXPECT_NEAR(numbers[0] * numbers[1] / 1e3, kTokens, 0.05 * kTokens);
  EXPECT_GT(cuda_emulation::counters().products, 0);
}

TEST_F(BenchGpu, ModelsAreTrainedWithGraphs) {
  GpuOptions options = tiny_options();
  options.parts = {"tiny"};
  run(options);
  EXPECT_EQ(cuda_emulation::counters().graph_launches, 0);
  options.graphs = true;
  EXPECT_TRUE(run(options).contains("one device"));
  EXPECT_GT(cuda_emulation::counters().graph_launches, 0);
}

TEST_F(BenchGpu, RefusesAPartThatThereIsNot) {
  GpuOptions options = tiny_options();
  options.parts = {"124M"};
  try {
    bench_gpu(options);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "gpu has no part '124M'; expected one of kernels tiny");
  }
}

TEST(BenchGpuModels, AreThoseOfGpt2) {
  const std::vector<GpuModel> models = gpt2_models();
  ASSERT_EQ(models.size(), 2U);
  const auto weights = [](const model::Gpt2Config& gpt) {
    return gpt.layers * (12 * gpt.width * gpt.width + 13 * gpt.width) + 2 * gpt.width +
           (gpt.vocabulary + gpt.context) * gpt.width;
  };
  EXPECT_NEAR(static_cast<double>(weights(models[0].config)), 124.4e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(weights(models[1].config)), 1557.7e6, 0.2e6);
}

}  // namespace
}  // namespace penstock::tools
