// DeepSpeed's convergence test on its tutorial's AlexNet: 100 steps of Adam over four micro batches
// on every way to lay four ranks, with images made by a rule that can be learnt.
#include "model/zoo/alexnet.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "model/data/indexed_source.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

constexpr int kSteps = 100;
constexpr int kMicroBatches = 4;  // of one image each, over all replicas
constexpr std::int64_t kClasses = 10;

// Images of waves whose direction and colour are their class, moved and disturbed by their number.
class Waves final : public model::IndexedSource {
 public:
  Waves() : IndexedSource(kSteps * kMicroBatches, std::nullopt) {}

 private:
  model::MicroBatch fetch(std::span<const std::int64_t> samples) override {
    const std::int64_t rows = std::ssize(samples);
    model::MicroBatch batch;
    batch.inputs = {tensor::Tensor::empty(memory(), {rows, 3, 32, 32}, tensor::DType::kF32)};
    batch.labels = {tensor::Tensor::empty(memory(), {rows}, tensor::DType::kI64)};
    float* pixel = batch.inputs[0].data<float>();
    std::int64_t* label = batch.labels[0].data<std::int64_t>();
    for (const std::int64_t sample : samples) {
      const std::int64_t kind = (sample * 7 + sample / 10) % kClasses;
      *label++ = kind;
      const double angle = 0.31 * static_cast<double>(kind);
      for (int channel = 0; channel < 3; ++channel) {
        const double colour = std::cos(1.3 * static_cast<double>(kind) + 2.1 * channel);
        for (int place = 0; place < 32 * 32; ++place) {
          const double along = place / 32 * std::cos(angle) + place % 32 * std::sin(angle);
          const double noise = std::sin(12.9898 * place + 78.233 * static_cast<double>(sample));
          *pixel++ = static_cast<float>(0.4 * colour +
                                        0.4 * std::sin(0.6 * along + static_cast<double>(sample)) +
                                        0.2 * noise);
        }
      }
    }
    return batch;
  }
};

struct Outcome {
  std::vector<double> losses;      // by step
  Weights gradients;               // of the first step, of this rank's stages
  std::vector<std::string> names;  // of this rank's weights
};

std::vector<Outcome> train(int pipe, int data, int steps) {
  const RunSpec run{.pipe = pipe,
                    .data = data,
                    .micro = 1,
                    .gas = kMicroBatches / data,
                    .optimizer = R"({"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.999],
                                     "eps": 1e-8, "weight_decay": 3e-7}})",
                    .more = R"({"seed": 123, "pipeline": {"partition": "parameters"}})"};
  return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, model::make_alexnet({.num_classes = kClasses}), config_of(run),
                          std::make_unique<Waves>());
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
      outcome.losses.push_back(engine.train_batch().loss);
      if (step == 0) outcome.gradients = gradients_of(engine);
    }
    for (const auto& [name, values] : weights_of(engine)) outcome.names.push_back(name);
    engine.close();
    return outcome;
  });
}

double mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

const Outcome& one_rank() {
  static const Outcome outcome = train(1, 1, kSteps)[0];
  return outcome;
}

using Names = std::vector<std::string>;

TEST(AlexNet, LearnsAlikeOnAnyNumberOfStages) {
  const std::vector<double>& losses = one_rank().losses;
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(kSteps));
  const double first = mean({losses.begin(), losses.begin() + 10});
  const double last = mean({losses.end() - 10, losses.end()});
  ASSERT_LT(last, 0.5 * first) << "the model does not learn";

  const auto two = train(2, 1, kSteps);
  EXPECT_EQ(two[0].losses, losses);  // bit for bit
  EXPECT_EQ(two[1].losses, losses);
  // Cut at 8.
  EXPECT_EQ(two[0].names,
            (Names{"0.bias", "0.weight", "3.bias", "3.weight", "6.bias", "6.weight"}));
  EXPECT_EQ(two[1].names,
            (Names{"10.bias", "10.weight", "14.bias", "14.weight", "8.bias", "8.weight"}));

  const auto four = train(4, 1, kSteps);
  for (const Outcome& outcome : four) EXPECT_EQ(outcome.losses, losses);
  // Cut at 6, 8 and 10.
  EXPECT_EQ(four[0].names, (Names{"0.bias", "0.weight", "3.bias", "3.weight"}));
  EXPECT_EQ(four[1].names, (Names{"6.bias", "6.weight"}));
  EXPECT_EQ(four[2].names, (Names{"8.bias", "8.weight"}));
  EXPECT_EQ(four[3].names, (Names{"10.bias", "10.weight", "14.bias", "14.weight"}));
}

// Adam divides by the size of a gradient, so that the last bits of small ones, which depend on the
// order of the replicas' sum, grow step by step: the gradients are compared at the first step, and
// over all steps the mean loss.
TEST(AlexNet, LearnsAlikeOnReplicas) {
  for (const auto& [pipe, data] : {std::pair{1, 4}, {2, 2}}) {
    SCOPED_TRACE("pipe " + std::to_string(pipe) + ", data " + std::to_string(data));
    const auto ranks = train(pipe, data, kSteps);
    std::vector<Weights> gradients;
    for (const Outcome& outcome : ranks) {
      EXPECT_EQ(outcome.losses, ranks[0].losses);
      gradients.push_back(outcome.gradients);
    }
    const Weights all = merged(gradients);
    EXPECT_EQ(all.size(), 12u);
    expect_close(all, one_rank().gradients, 1e-5);
    EXPECT_NEAR(ranks[0].losses[0], one_rank().losses[0], 1e-6);
    EXPECT_NEAR(mean(ranks[0].losses), mean(one_rank().losses), 0.05 * mean(one_rank().losses));
  }
}

// The keys and values of DeepSpeed's CIFAR-10 tutorial, in single precision.
constexpr std::string_view kTutorial = R"({
  "train_batch_size": 16, "steps_per_print": 2000,
  "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8,
                                           "weight_decay": 3e-7}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001,
                                               "warmup_num_steps": 1000}},
  "gradient_clipping": 1.0, "prescale_gradients": false, "bf16": {"enabled": false},
  "fp16": {"enabled": false, "fp16_master_weights_and_grads": false, "loss_scale": 0,
           "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1,
           "initial_scale_power": 15},
  "wall_clock_breakdown": false,
  "zero_optimization": {"stage": 0, "allgather_partitions": true, "reduce_scatter": true,
                        "allgather_bucket_size": 50000000, "reduce_bucket_size": 50000000,
                        "overlap_comm": true, "contiguous_gradients": true, "cpu_offload": false}
})";

TEST(AlexNet, TrainsByTheTutorialsConfiguration) {
  const engine::Config config = engine::parse_config(kTutorial, "the tutorial's");
  EXPECT_EQ(config.without_effect.size(), 12u) << "6 keys of fp16, 6 of ZeRO";
  on_ranks<int>(2, [&](comm::World& world) {
    engine::Engine engine(world, model::make_alexnet({.num_classes = kClasses}), config,
                          std::make_unique<Waves>());
    EXPECT_EQ(engine.batch(), (engine::BatchTriple{16, 8, 1}));  // two replicas
    for (const double rate : {0.0, 0.001 * std::log(2.0) / std::log(1000.0)}) {
      const engine::TrainResult result = engine.train_batch();
      EXPECT_NEAR(result.lr[0], rate, 1e-15);
      EXPECT_GT(result.grad_norm, 0.0);
    }
    engine.close();
    return 0;
  });
}

}  // namespace
}  // namespace penstock::testing
