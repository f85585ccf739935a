// Optimizer state and gradients that replicas share out (ZeRO): the same training as without.
#include <cmath>

#include <gtest/gtest.h>

#include "model/layers/linear.h"
#include "tensor/ops/activation.h"
#include "tests/engine/mixed_runs.h"

namespace penstock::testing {
namespace {

std::unique_ptr<model::DataSource> tokens() {
  return token_samples(256);
}

void expect_same(const std::vector<MixedOutcome>& actual, const std::vector<MixedOutcome>& wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (std::size_t rank = 0; rank < actual.size(); ++rank) {
    EXPECT_EQ(actual[rank].losses, wanted[rank].losses);
    EXPECT_TRUE(actual[rank].weights == wanted[rank].weights) << "rank " << rank;
  }
}

TEST(Zero, WithoutClippingHasTheBitsOfStage0) {
  for (const char* optimizer : {R"({"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}})",
                                R"({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}})"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const int data : {2, 3}) {
        MixedRun run{.precision = precision, .pipe = 2, .data = data, .micro_batches = 12};
        run.clip = 0.0;
        run.optimizer = optimizer;
        const auto wanted = train(small_gpt(), tokens, run, 3);
        EXPECT_NE(wanted[0].losses[0], wanted[0].losses[2]);
        for (const int zero : {1, 2}) {
          run.zero = zero;
          SCOPED_TRACE(run.text());
          expect_same(train(small_gpt(), tokens, run, 3), wanted);
        }
      }
    }
  }
}

TEST(Zero, ClipsByTheSameNorm) {
  MixedRun run{.pipe = 2, .data = 2, .model = 2};
  run.clip = 0.05;
  const auto wanted = train(small_gpt(), tokens, run, 4);
  for (const int zero : {1, 2}) {
    run.zero = zero;
    const auto outcome = train(small_gpt(), tokens, run, 4);
    for (std::size_t step = 0; step < 4; ++step) {
      EXPECT_GT(wanted[0].norms[step], 0.05);
      EXPECT_NEAR(outcome[0].norms[step], wanted[0].norms[step], 1e-6 * wanted[0].norms[step]);
      EXPECT_NEAR(outcome[0].losses[step], wanted[0].losses[step], 1e-6 * wanted[0].losses[step]);
    }
  }
}

TEST(Zero, MayReduceAfterEachMicroBatch) {
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    MixedRun run{.zero = 2, .pipe = 2, .data = 2, .schedule = schedule};
    const auto wanted = train(small_gpt(), tokens, run, 4);
    run.more = R"({"zero_optimization": {"reduce_each_micro_batch": true}})";
    const auto outcome = train(small_gpt(), tokens, run, 4);
    for (std::size_t step = 0; step < 4; ++step) {
      EXPECT_NEAR(outcome[0].losses[step], wanted[0].losses[step], 1e-5 * wanted[0].losses[step]);
    }
  }
}

// Linear(17→3), Linear(3→1), Linear(1→16): none divides by the number of replicas, and one has
// fewer elements than there are.
model::Module odd_sizes() {
  model::Module module = mlp8();
  module.layers = {model::layer<model::Linear>("Linear", kWidth, std::int64_t{3}),
                   model::layer<model::Linear>("Linear", std::int64_t{3}, std::int64_t{1}),
                   model::layer<model::Linear>("Linear", std::int64_t{1}, kWidth)};
  return module;
}

TEST(Zero, SharesOutAnySizes) {
  for (const int data : {2, 3, 5}) {
    for (const int pipe : {1, 3}) {
      MixedRun run{.pipe = pipe, .data = data, .micro_batches = 2 * data};
      run.clip = 0.0;
      const auto source = [] { return mlp_samples(256); };
      const auto wanted = train(odd_sizes(), source, run, 3);
      for (const int zero : {1, 2}) {
        run.zero = zero;
        SCOPED_TRACE(run.text());
        expect_same(train(odd_sizes(), source, run, 3), wanted);
      }
    }
  }
}

// Bytes of everything but pipe buffers, between steps, as planned; and at their peak.
struct Bytes {
  std::int64_t live = 0;
  engine::RankMemory plan;
};

std::vector<Bytes> bytes_of(const MixedRun& run) {
  return on_ranks<Bytes>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, small_gpt(), run.config(), tokens());
    engine.train_batch();
    Bytes bytes{.live = engine.memory().live_bytes(),
                .plan = engine.planned_memory(tokens()->next(1).value())};
    engine.close();
    return bytes;
  });
}

TEST(Zero, HoldsWhatThePlanSays) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int recompute : {0, 2}) {
      std::int64_t optimizer = 0, gradients = 0;
      for (const int zero : {0, 1, 2}) {
        const MixedRun run{
            .precision = precision, .zero = zero, .pipe = 2, .data = 2, .recompute = recompute};
        SCOPED_TRACE(run.text());
        const auto ranks = bytes_of(run);
        for (const Bytes& rank : ranks) {
          EXPECT_EQ(rank.live,
                    rank.plan.weights + rank.plan.gradients_between_steps + rank.plan.optimizer);
        }
        const engine::RankMemory& first = ranks[0].plan;
        if (zero == 0) {
          optimizer = first.optimizer;
          gradients = first.gradients_between_steps;
        } else {
          EXPECT_LE(first.optimizer, optimizer * 6 / 10);
        }
        if (zero == 2) {
          EXPECT_LE(first.gradients_between_steps, gradients * 6 / 10);
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::testing
