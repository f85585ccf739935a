// Evaluation beside training: it changes nothing, in whatever order the calls come, and calls in a
// row do not run into each other.
#include <chrono>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

const std::string kAdam = R"({"type": "AdamW", "params": {"lr": 0.01}})";
const std::string kWarmup =
    R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01,
                                                     "warmup_num_steps": 10}}})";

struct Outcome {
  std::vector<Weights> weights;  // after each training step
  std::vector<std::vector<double>> lr;
  std::vector<double> losses;  // of training
  std::vector<double> eval_losses;
  bool counters_kept = true;  // by every evaluation
  bool gradients_kept = true;
};

// Calls train_batch for each T and eval_batch for each E.
Outcome run_calls(comm::World& world, const RunSpec& run, const std::string& calls,
                  double dropout) {
  const model::Module module = mlp8(dropout);
  engine::Engine engine(world, module, config_of(run), mlp_samples(256));
  set_weights(engine, start_weights(module));
  std::unique_ptr<model::DataSource> held_out = mlp_samples(256);
  Outcome outcome;
  const auto counters = [&] {
    return std::tuple(engine.global_steps(), engine.global_samples(), engine.skipped_steps(),
                      engine.data_position(), engine.lr());
  };
  for (const char call : calls) {
    if (call == 'T') {
      outcome.losses.push_back(engine.train_batch().loss);
      outcome.weights.push_back(weights_of(engine));
      outcome.lr.push_back(engine.lr());
    } else {
      const auto before = counters();
      const Weights gradients = gradients_of(engine);
      held_out->seek(100);
      outcome.eval_losses.push_back(
          engine.eval_batch(*held_out, {.micro_batches = 3}).loss.value());
      outcome.counters_kept &= counters() == before;
      outcome.gradients_kept &= gradients_of(engine) == gradients;
    }
  }
  engine.close();
  return outcome;
}

TEST(Eval, ChangesNothingWhereverItComes) {
  for (const int pipe : {1, 2, 4}) {
    const RunSpec run{.pipe = pipe, .micro = 2, .optimizer = kAdam, .more = kWarmup};
    const auto on_grid = [&](const std::string& calls, double dropout = 0.2) {
      return on_ranks<Outcome>(
          pipe, [&](comm::World& world) { return run_calls(world, run, calls, dropout); });
    };
    const std::vector<Outcome> wanted = on_grid("TTT");
    ASSERT_NE(wanted[0].losses, on_grid("TTT", 0.0)[0].losses) << "dropout is not on";
    for (const std::string calls : {"ETTT", "TETT", "ETETET", "EETTT", "TTTE"}) {
      SCOPED_TRACE("pipe " + std::to_string(pipe) + ", " + calls);
      const std::vector<Outcome> outcomes = on_grid(calls);
      for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
        EXPECT_EQ(outcomes[rank].weights, wanted[rank].weights);
        EXPECT_EQ(outcomes[rank].lr, wanted[rank].lr);
        EXPECT_EQ(outcomes[rank].losses, wanted[rank].losses);
        EXPECT_EQ(outcomes[rank].eval_losses, outcomes[0].eval_losses);
        EXPECT_TRUE(outcomes[rank].counters_kept);
        EXPECT_TRUE(outcomes[rank].gradients_kept);
      }
    }
    // Without training in between, dropout is off: the same loss twice, and that without dropout.
    const std::vector<double> twice = on_grid("EE")[0].eval_losses;
    EXPECT_EQ(twice[0], twice[1]);
    EXPECT_EQ(twice, on_grid("EE", 0.0)[0].eval_losses);
  }
}

// Rounds of one training step and three evaluations; with a seed, a rank now and then is late.
std::vector<double> losses_of_rounds(comm::World& world, const RunSpec& run, unsigned seed) {
  engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(256));
  std::mt19937 random(seed + 97 * static_cast<unsigned>(world.rank()));
  const auto pause = [&] {
    if (seed == 0 || random() % 2 == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 10));
  };
  std::vector<double> losses;
  std::vector<std::unique_ptr<model::DataSource>> sets;
  for (int i = 0; i < 3; ++i) sets.push_back(mlp_samples(256));
  for (int round = 0; round < 12; ++round) {
    pause();
    losses.push_back(engine.train_batch().loss);
    for (std::size_t i = 0; i < sets.size(); ++i) {
      pause();
      // Unlike sets and sizes, so that a message of one call would not fit another.
      const engine::EvalResult result =
          engine.eval_batch(*sets[i], {.micro_batches = static_cast<int>(i) + 1});
      losses.push_back(result.loss.value());
      losses.insert(losses.end(), result.micro_losses.begin(), result.micro_losses.end());
    }
  }
  engine.close();
  return losses;
}

TEST(Eval, SeveralInARowOnRanksThatDriftApart) {
  const RunSpec run{.pipe = 4, .micro = 2};
  const auto rounds = [&](unsigned seed) {
    return on_ranks<std::vector<double>>(
        run.ranks(), [&](comm::World& world) { return losses_of_rounds(world, run, seed); });
  };
  const auto wanted = rounds(0);
  ASSERT_EQ(wanted[0].size(), 12u * (1 + 3 + 1 + 2 + 3));
  ASSERT_NE(wanted[0].front(), wanted[0][10]) << "training changes nothing";
  const auto late = rounds(5);
  for (std::size_t rank = 0; rank < late.size(); ++rank) EXPECT_EQ(late[rank], wanted[0]);
}

// Any rank count and number of micro batches is fine, fewer than stages too.
TEST(Eval, OfFewerMicroBatchesThanStages) {
  for (const int pipe : {2, 4}) {
    for (const int micro_batches : {1, 2, 3, 8}) {
      const RunSpec run{.pipe = pipe, .micro = 2, .gas = 1};
      const auto losses = on_ranks<engine::EvalResult>(pipe, [&](comm::World& world) {
        engine::Engine engine(world, mlp8(), config_of(run));
        set_weights(engine, start_weights(mlp8()));
        auto result = engine.eval_batch(*mlp_samples(64), {.micro_batches = micro_batches});
        engine.close();
        return result;
      });
      const auto one = on_ranks<engine::EvalResult>(1, [&](comm::World& world) {
        engine::Engine engine(world, mlp8(), config_of({.micro = 2, .gas = 1}));
        set_weights(engine, start_weights(mlp8()));
        auto result = engine.eval_batch(*mlp_samples(64), {.micro_batches = micro_batches});
        engine.close();
        return result;
      });
      for (const engine::EvalResult& result : losses) {
        EXPECT_EQ(result.loss, one[0].loss);
        EXPECT_EQ(result.micro_losses, one[0].micro_losses);
      }
    }
  }
}

}  // namespace
}  // namespace penstock::testing
