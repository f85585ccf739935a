// Optimizer state and gradients that replicas share out (ZeRO): the same training as without.
#include <cmath>

#include <gtest/gtest.h>

#include "engine/replica_check.h"
#include "model/layers/linear.h"
#include "tensor/ops/activation.h"
#include "tests/engine/checkpoint_content.h"
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

// A large weight beside tiny ones, of which some have fewer elements than there are replicas.
model::Module large_and_tiny() {
  model::Module module = mlp8();
  module.layers = {model::layer<model::Linear>("Linear", kWidth, std::int64_t{300}),
                   model::layer<model::Linear>("Linear", std::int64_t{300}, std::int64_t{3}),
                   model::layer<model::Linear>("Linear", std::int64_t{3}, std::int64_t{1}),
                   model::layer<model::Linear>("Linear", std::int64_t{1}, kWidth)};
  return module;
}

// Right after the load every replica has what was saved, before any step gathers weights; moments
// come together again; and training goes on as it would have.
TEST(Zero, GoesOnWithAnotherNumberOfReplicas) {
  struct Place {
    int data, zero;
  };
  const auto source = [] { return mlp_samples(256); };
  const auto run_on = [](const Place& place) {
    MixedRun run{.zero = place.zero, .data = place.data, .micro_batches = 12};
    run.clip = 0.0;
    return run;
  };
  const auto saved_from = [&](const Place& place, const std::filesystem::path& folder) {
    const MixedRun run = run_on(place);
    return on_ranks<MixedOutcome>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, large_and_tiny(), run.config(), source());
      train(engine, 3);
      engine.save_checkpoint(folder, "saved");
      MixedOutcome outcome = train(engine, 5);
      engine.close();
      return outcome;
    });
  };
  for (const auto& [from, to] : {std::pair{Place{2, 1}, Place{1, 1}},
                                 {{2, 1}, {3, 1}},
                                 {{3, 1}, {2, 1}},
                                 {{1, 1}, {4, 1}},
                                 {{2, 1}, {2, 0}},
                                 {{2, 0}, {2, 1}},
                                 {{3, 2}, {4, 0}},
                                 {{1, 0}, {6, 2}}}) {
    SCOPED_TRACE(std::to_string(from.data) + " replicas, ZeRO " + std::to_string(from.zero) +
                 " to " + std::to_string(to.data) + ", ZeRO " + std::to_string(to.zero));
    const TemporaryFolder folder;
    const MixedOutcome wanted = saved_from(from, folder.path())[0];
    const CheckpointContent saved = content_of(folder.path(), "saved");
    const MixedRun run = run_on(to);
    const auto ranks = on_ranks<MixedOutcome>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, large_and_tiny(), run.config(), source());
      engine.load_checkpoint(folder.path(), "saved");
      engine::check_replicas(world, engine);
      engine.save_checkpoint(folder.path(), "again");
      MixedOutcome outcome = train(engine, 5);
      engine::check_replicas(world, engine);
      engine.close();
      return outcome;
    });
    const CheckpointContent again = content_of(folder.path(), "again");
    EXPECT_EQ(saved.tensors.at("2.bias").size(), sizeof(float)) << "one element";
    EXPECT_EQ(saved.tensors.size(), 8u * 3) << "weights and two moments each";
    EXPECT_TRUE(again.tensors == saved.tensors);
    for (const MixedOutcome& rank : ranks) {
      for (std::size_t step = 0; step < 5; ++step) {
        EXPECT_NEAR(rank.losses[step], wanted.losses[step], 1e-5 * wanted.losses[step]);
      }
      expect_close(rank.weights, wanted.weights, 1e-4);
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
