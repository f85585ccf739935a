// What is measured is never more than the plan, whatever precision, optimizer, sharing out of state
// and recomputation add to it, on all axes of the grid: pipe buffers, and all tensors together.
#include <map>

#include <gtest/gtest.h>

#include "tests/engine/memory_checks.h"
#include "tests/engine/mixed_runs.h"
#include "tests/engine/model_axis_runs.h"

namespace penstock::testing {
namespace {

Subject gpt() {
  return {"gpt", small_gpt, [] { return token_samples(256); }};
}
Subject llama() {
  return {"llama", [] { return small_llama(); }, [] { return small_tokens(); }};
}

void check(const Subject& subject, const MixedRun& run) {
  SCOPED_TRACE(subject.name + ", " + run.text() + ", " + run.optimizer);
  for (const MemoryComparison& rank :
       on_ranks<MemoryComparison>(run.ranks(), [&](comm::World& world) {
         return measure_training(world, subject.module(), run.config(), subject.data);
       })) {
    expect_as_planned(rank);
    EXPECT_LE(rank.peak, rank.plan.total());
    EXPECT_GT(rank.peak, rank.plan.weights + rank.plan.optimizer);
    // Beside other ranks, transfers that end meanwhile would count with it.
    if (run.ranks() == 1) {
      EXPECT_LE(rank.measured.workspace, rank.plan.workspace);
    }
  }
}

// Optimizers and recomputation take turns, so that each meets every precision and ZeRO stage.
void check_all(const Subject& subject, int pipe, int data, int model) {
  const std::vector<std::string> optimizers = {"AdamW", "Lamb", "Lion", "SGD"};
  std::map<std::string, int> runs;
  std::size_t turn = 0;
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    for (const int zero : {0, 1, 2}) {
      for (const char* schedule : {"1f1b", "zb_h1", "zbv"}) {
        const std::string& optimizer = optimizers[turn % optimizers.size()];
        MixedRun run{.precision = precision,
                     .zero = zero,
                     .pipe = pipe,
                     .data = data,
                     .model = model,
                     .schedule = schedule,
                     .recompute = static_cast<int>((turn + turn / 3) % 3)};
        run.optimizer = R"({"type": ")" + optimizer + R"(", "params": {"lr": 0.003}})";
        if (run.precision == "fp16") run.more = R"({"fp16": {"initial_scale_power": 10}})";
        check(subject, run);
        ++runs[optimizer];
        ++turn;
      }
    }
  }
  EXPECT_EQ(runs.size(), optimizers.size());
}

TEST(MemoryMixed, OfAGptIsNeverMoreThanThePlan) {
  check_all(gpt(), 1, 1, 1);
  check_all(gpt(), 2, 2, 2);
}

TEST(MemoryMixed, OfALlamaIsNeverMoreThanThePlan) {
  check_all(llama(), 1, 1, 1);
  check_all(llama(), 2, 2, 2);
}

TEST(MemoryMixed, OfTheWaysToReduceIsNeverMoreThanThePlan) {
  for (const char* more :
       {R"({"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp16"})",
        R"({"prescale_gradients": false, "gradient_predivide_factor": 2.0})",
        R"({"prescale_gradients": false, "gradient_predivide_factor": 2.0,
            "communication_data_type": "fp16"})",
        R"({"tensor_parallel": {"sequence_parallel": true}})",
        R"({"pipeline": {"pipe_partitioned": true, "grad_partitioned": true}})"}) {
    for (const int zero : {0, 1, 2}) {
      for (const int data : {1, 2}) {
        MixedRun run{.precision = "bf16", .zero = zero, .pipe = 2, .data = data, .model = 2};
        run.more = more;
        check(gpt(), run);
      }
    }
  }
  MixedRun run{.precision = "bf16", .zero = 2, .pipe = 2, .data = 2, .schedule = "zb_h1"};
  run.more = R"({"zero_optimization": {"reduce_each_micro_batch": true}})";
  check(llama(), run);
}

}  // namespace
}  // namespace penstock::testing
