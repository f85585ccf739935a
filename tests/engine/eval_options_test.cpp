// What may be asked of eval_batch: sizes of its own, outputs, no loss, no labels, no mean, no
// broadcast; and an engine that has no optimizer.
#include <gtest/gtest.h>

#include "model/data/in_memory_source.h"
#include "model/layers/lambda.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/elementwise.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using engine::EvalOptions;
using engine::EvalOutputs;
using engine::EvalResult;
using engine::Reduction;
using tensor::Tensor;

const std::vector<std::string> kPipelines = {R"({"schedule": "1f1b"})",
                                             R"({"schedule": "interleaved_1f1b", "chunks": 2})"};

RunSpec grid(int pipe, int data, const std::string& pipeline) {
  return {.pipe = pipe,
          .data = data,
          .micro = 2,
          .gas = 4,
          .optimizer = "",
          .more = R"({"pipeline": )" + pipeline + "}"};
}

std::vector<EvalResult> evaluate(const model::Module& module, const RunSpec& run,
                                 const EvalOptions& options, std::int64_t samples = 64,
                                 bool labels = true) {
  return on_ranks<EvalResult>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run));
    set_weights(engine, start_weights(module));
    model::MicroBatch all = *mlp_samples(samples)->next(samples);
    if (!labels) all.labels.clear();
    model::InMemorySource data(all.inputs, all.labels);
    EvalResult result = engine.eval_batch(data, options);
    EXPECT_EQ(engine.eval_batch(data, {.micro_batches = 0, .rows = 1, .compute_loss = false}).loss,
              std::nullopt);
    engine.close();
    return result;
  });
}

std::vector<float> values(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

// The outputs of samples [0, count) on one rank, as one micro batch.
std::vector<float> outputs_of(const model::Module& module, std::int64_t count) {
  const auto one =
      evaluate(module, grid(1, 1, kPipelines[0]),
               {.micro_batches = 1, .rows = count, .outputs = EvalOutputs::kMicroBatches});
  return values(one[0].outputs.at(0).at(0));
}

bool has_last_stage(std::size_t rank, const RunSpec& run) {
  return static_cast<int>(rank) / run.data == run.pipe - 1;
}

TEST(EvalOptionsTest, OwnSizesAndTheOutputsOfEveryMicroBatch) {
  const model::Module module = mlp8();
  const std::vector<float> wanted = outputs_of(module, 30);
  for (const std::string& pipeline : kPipelines) {
    for (const int data : {1, 2}) {
      SCOPED_TRACE(pipeline + ", replicas " + std::to_string(data));
      const RunSpec run = grid(2, data, pipeline);
      // Five micro batches per replica, of three rows, where training has four of two.
      const auto results = evaluate(
          module, run, {.micro_batches = 5, .rows = 3, .outputs = EvalOutputs::kMicroBatches});
      for (std::size_t rank = 0; rank < results.size(); ++rank) {
        EXPECT_EQ(results[rank].loss, results[0].loss);
        EXPECT_EQ(results[rank].micro_losses.size(), 5u);
        EXPECT_TRUE(results[rank].mean_outputs.empty());
        if (!has_last_stage(rank, run)) {
          EXPECT_TRUE(results[rank].outputs.empty());
          continue;
        }
        ASSERT_EQ(results[rank].outputs.size(), 5u);
        for (std::size_t m = 0; m < 5; ++m) {
          const auto g = static_cast<std::ptrdiff_t>(m) * data + static_cast<int>(rank) % data;
          const auto begin = wanted.begin() + g * 3 * kWidth;
          ASSERT_EQ(results[rank].outputs[m].size(), 1u);
          EXPECT_EQ(values(results[rank].outputs[m][0]),
                    std::vector<float>(begin, begin + 3 * kWidth))
              << "micro batch " << m;
        }
      }
    }
  }
}

// Eight layers, then the pair (y, 2y in half precision).
model::Module ending_in_a_pair() {
  model::Module module = mlp8();
  module.loss = nullptr;
  module.layers.push_back(
      model::lambda("Pair", [](model::Context& context, std::span<const Tensor> x) {
        return std::vector{
            x[0], tensor::cast(context, tensor::scale(context, x[0], 2.0), tensor::DType::kF16)};
      }));
  return module;
}

TEST(EvalOptionsTest, OutputsAreAveragedElementByElementWithoutLossOrLabels) {
  const std::vector<float> all = outputs_of(mlp8(), 16);
  std::vector<double> wanted(2 * kWidth, 0.0);
  for (std::size_t i = 0; i < all.size(); ++i) wanted[i % wanted.size()] += all[i] / 8.0;
  for (const int data : {1, 2}) {
    const RunSpec run = grid(2, data, kPipelines[0]);
    const auto results =
        evaluate(ending_in_a_pair(), run,
                 {.micro_batches = 8 / data, .compute_loss = false, .outputs = EvalOutputs::kMean},
                 64, /*labels=*/false);
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].loss, std::nullopt);
      EXPECT_TRUE(results[rank].micro_losses.empty());
      EXPECT_TRUE(results[rank].outputs.empty());
      if (!has_last_stage(rank, run)) {
        EXPECT_TRUE(results[rank].mean_outputs.empty());
        continue;
      }
      ASSERT_EQ(results[rank].mean_outputs.size(), 2u);
      const std::vector<float> mean = values(results[rank].mean_outputs[0]);
      tensor::Context context(tensor::make_cpu_allocator());
      ASSERT_EQ(results[rank].mean_outputs[1].dtype(), tensor::DType::kF16);
      const std::vector<float> twice =
          values(tensor::cast(context, results[rank].mean_outputs[1], tensor::DType::kF32));
      ASSERT_EQ(mean.size(), wanted.size());
      for (std::size_t i = 0; i < mean.size(); ++i) {
        EXPECT_NEAR(mean[i], wanted[i], 1e-6);
        EXPECT_NEAR(twice[i], 2.0 * wanted[i], 2e-3);
      }
    }
  }
}

TEST(EvalOptionsTest, WithoutMeanThereAreTheLossesOfMicroBatchesAlone) {
  const RunSpec run = grid(2, 2, kPipelines[0]);
  const auto with_mean = evaluate(mlp8(), run, {});
  const auto results = evaluate(mlp8(), run, {.reduction = Reduction::kNone});
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].loss, std::nullopt);
    EXPECT_EQ(results[rank].replica_loss, std::nullopt);
    EXPECT_EQ(results[rank].micro_losses, with_mean[rank].micro_losses);
    double sum = 0.0;
    for (const double loss : results[rank].micro_losses) sum += loss;
    EXPECT_NEAR(with_mean[rank].replica_loss.value(), sum / 4.0, 1e-12);
  }
}

TEST(EvalOptionsTest, WithoutBroadcastTheLastStageAloneKnowsTheLoss) {
  const RunSpec run = grid(3, 2, kPipelines[0]);
  const auto everywhere = evaluate(mlp8(), run, {});
  const auto results = evaluate(mlp8(), run, {.broadcast_loss = false});
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const bool knows = has_last_stage(rank, run);
    EXPECT_EQ(results[rank].loss, knows ? everywhere[rank].loss : std::nullopt) << rank;
    EXPECT_EQ(results[rank].micro_losses,
              knows ? everywhere[rank].micro_losses : std::vector<double>{})
        << rank;
  }
}

// Calls that cannot go on, on all ranks; afterwards training goes on as if they had not been.
TEST(EvalOptionsTest, RefusedCallsChangeNothing) {
  const RunSpec run{.pipe = 2, .data = 1, .micro = 2};
  struct Outcome {
    std::vector<std::string> errors;
    std::vector<double> losses;
  };
  const auto train = [&](bool evaluating) {
    return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, mlp8(0.2), config_of(run), mlp_samples(64));
      Outcome outcome;
      for (int step = 0; step < 3; ++step) {
        if (evaluating) {
          std::unique_ptr<model::DataSource> data = mlp_samples(20);
          data->seek(4);
          const auto refuse = [&](const EvalOptions& options) {
            outcome.errors.push_back(thrown_by([&] { engine.eval_batch(*data, options); }));
            EXPECT_EQ(data->position(), 4);
          };
          refuse({.micro_batches = -1});
          refuse({.rows = -3});
          refuse({.rows = 9});
          refuse({.rows = world.rank() + 1});
          refuse({.broadcast_loss = world.rank() == 0});
        }
        outcome.losses.push_back(engine.train_batch().loss);
      }
      engine.close();
      return outcome;
    });
  };
  const auto wanted = train(false), got = train(true);
  const char* differ =
      "CallRefused: [eval_batch] the ranks do not agree on the options of the call; expected all "
      "to make the same calls with the same configuration";
  for (const Outcome& outcome : got) {
    EXPECT_EQ(outcome.losses, wanted[0].losses);
    EXPECT_EQ(outcome.errors[0],
              "CallRefused: [eval_batch] all ranks: expected a number of micro batches, or 0 for "
              "as many as in training, got -1");
    EXPECT_EQ(outcome.errors[1],
              "CallRefused: [eval_batch] all ranks: expected a number of rows, or 0 for as many as "
              "in training, got -3");
    EXPECT_TRUE(outcome.errors[2].starts_with("EndOfData: [eval_batch] ")) << outcome.errors[2];
    EXPECT_EQ(outcome.errors[3], differ);
    EXPECT_EQ(outcome.errors[4], differ);
  }
}

TEST(EvalOptionsTest, OutputsThatHaveNoMeanAreRefused) {
  model::Module module = mlp8();
  module.loss = nullptr;
  module.layers.push_back(
      model::lambda("Whole", [](model::Context& context, std::span<const Tensor> x) {
        return std::vector{tensor::cast(context, x[0], tensor::DType::kI32)};
      }));
  const RunSpec run = grid(2, 1, kPipelines[0]);
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run));
    return thrown_by([&] {
      engine.eval_batch(*mlp_samples(64), {.compute_loss = false, .outputs = EvalOutputs::kMean});
    });
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("output 0 of micro batch 0 is i32 [2, 16] on cpu; expected floating"),
              std::string::npos)
        << error;
  }
}

TEST(WithoutOptimizer, OnlyEvaluationWorks) {
  const RunSpec run = grid(2, 2, kPipelines[0]);
  on_ranks<int>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    EXPECT_EQ(thrown_by([&] { engine.train_batch(); }),
              "ConfigError: [train_batch] expected an optimizer in the configuration, got none; "
              "add \"optimizer\", or use eval_batch");
    EXPECT_TRUE(engine.eval_batch(*mlp_samples(64)).loss.has_value());
    engine.close();
    return 0;
  });
}

}  // namespace
}  // namespace penstock::testing
