// Gradients against a run without pipeline, stage by stage; each counts once, however the batch is
// cut and however often a weight is used. Plain SGD without clipping, which hides no factor.
#include <algorithm>
#include <atomic>
#include <cmath>

#include <gtest/gtest.h>

#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tensor/ops/cross_entropy.h"
#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

constexpr double kLr = 0.125;
const std::string kSgd = R"({"type": "SGD", "params": {"lr": 0.125}})";

struct Outcome {
  double loss = 0.0, norm = 0.0;
  Weights gradients, weights;
};

using Source = std::unique_ptr<model::DataSource> (*)(std::int64_t, Served*);

// One step from the start weights; gradients and weights of all stages.
Outcome step_on(const RunSpec& run, const model::Module& module, Source source) {
  const Weights start = start_weights(module);
  const auto by_rank = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), source(64, nullptr));
    set_weights(engine, start);
    const engine::TrainResult result = engine.train_batch();
    Outcome outcome{result.loss, result.grad_norm, gradients_of(engine), weights_of(engine)};
    engine.close();
    return outcome;
  });
  std::vector<Weights> gradients, weights;
  for (const Outcome& outcome : by_rank) {
    EXPECT_EQ(outcome.loss, by_rank[0].loss);
    EXPECT_EQ(outcome.norm, by_rank[0].norm);
    gradients.push_back(outcome.gradients);
    weights.push_back(outcome.weights);
  }
  return {by_rank[0].loss, by_rank[0].norm, merged(gradients), merged(weights)};
}

void check_cuts(const model::Module& module, Source source) {
  constexpr std::int64_t kBatch = 32;
  Reference reference(module, start_weights(module));
  const double loss = reference.accumulate(take(*source(kBatch, nullptr), kBatch));
  for (const auto& [name, values] : reference.gradients()) {
    ASSERT_GT(std::abs(values.front()), 0.0) << name << " has no gradient to compare";
  }
  const double norm = reference.norm();
  const Weights gradients = reference.gradients();
  reference.sgd(kLr);

  for (const int data : {1, 2}) {
    for (const int gas : {1, 4, 16}) {
      const RunSpec run{
          .pipe = 3, .data = data, .micro = kBatch / gas / data, .gas = gas, .optimizer = kSgd};
      SCOPED_TRACE("data " + std::to_string(data) + ", gas " + std::to_string(gas));
      const Outcome outcome = step_on(run, module, source);
      EXPECT_NEAR(outcome.loss, loss, 1e-5 * loss);
      EXPECT_NEAR(outcome.norm, norm, 1e-5 * norm);
      expect_close(outcome.gradients, gradients);
      expect_close(outcome.weights, reference.weights());
    }
  }
}

TEST(Gradients, AreThoseOfTheWholeBatchHoweverItIsCut) {
  check_cuts(mlp8(), mlp_samples);
}

TEST(Gradients, OfTiedWeightsAreThoseOfTheWholeBatchHoweverItIsCut) {
  check_cuts(tie6(), token_samples);
}

// Tokens that do not count: the mean is over those that do, not over micro batches.
TEST(Gradients, WeighMicroBatchesByTheirValidTokens) {
  class Masked final : public model::DataSource {
   public:
    std::optional<model::MicroBatch> next(std::int64_t rows) override {
      auto batch = source_->next(rows);
      if (!batch) return batch;
      for (std::int64_t row = 0; row < rows; ++row) {
        // Sample i keeps its first i % 4 labels.
        for (std::int64_t k = batch->ids[static_cast<std::size_t>(row)] % 4; k < 6; ++k) {
          batch->labels[0].data<std::int64_t>()[6 * row + k] = tensor::kIgnoreIndex;
        }
      }
      return batch;
    }
    std::int64_t position() const override { return source_->position(); }
    void seek(std::int64_t position) override { source_->seek(position); }
    std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

   private:
    std::unique_ptr<model::DataSource> source_ = token_samples(64);
  };
  check_cuts(tie6(), [](std::int64_t, Served*) -> std::unique_ptr<model::DataSource> {
    return std::make_unique<Masked>();
  });
}

// --- the norm

// Fills every gradient after the backward of the only micro batch: the uses of the tied weight,
// unlike each other, add up to 1 in each element; everything else is 0.
void fill_gradients(engine::Engine& engine, int uses, int data) {
  engine.replace_handler(schedule::Opcode::kBackwardPass, [&engine, uses, data](
                                                              const auto&,
                                                              const std::function<void()>& run) {
    run();
    for (std::size_t i = 0; i < engine.stages().front()->slots().size(); ++i) {
      const model::StageSlot& place = engine.stages().front()->slot_info()[i];
      const bool tied = !engine.stages().front()->parameters()[place.parameter].tie_key.empty();
      const double share = place.layer == 1 ? 1.0 - 0.25 * (uses - 1) : 0.25;
      tensor::GradSlot& slot = engine.stages().front()->slots()[i];
      std::ranges::fill(slot.grad.span<float>(), tied ? static_cast<float>(share / data) : 0.0f);
      slot.empty = false;
    }
  });
}

// Linear 16→40, tied 40→20, Linear 20→40, tied 40→20, …, Linear 20→16: the uses are the layers
// 1, 3, …
model::Module tied_20_by_40(int uses) {
  model::Module module;
  module.layers.push_back(model::layer<model::Linear>("Linear", kWidth, 40));
  for (int use = 0; use < uses; ++use) {
    if (use > 0) module.layers.push_back(model::layer<model::Linear>("Linear", 20, 40));
    module.layers.push_back(model::tied_layer<model::Linear>("t", "Tied", nullptr, 40, 20,
                                                             model::LinearOptions{.bias = false}));
  }
  module.layers.push_back(model::layer<model::Linear>("Linear", 20, kWidth));
  module.loss = std::make_shared<model::MseLoss>();
  return module;
}

TEST(Gradients, NormCountsATiedWeightOnce) {
  for (const int uses : {2, 3}) {
    const model::Module module = tied_20_by_40(uses);
    std::size_t most_owners = 0;
    for (const auto& [pipe, data] : {std::pair{1, 1}, {2, 1}, {2, 2}, {4, 1}}) {
      const RunSpec run{.pipe = pipe, .data = data, .gas = 1, .more = kUniform};
      std::atomic<std::size_t> owners = 0;
      const auto norms = on_ranks<double>(run.ranks(), [&](comm::World& world) {
        engine::Engine engine(world, module, config_of(run), mlp_samples(2));
        if (!values_of(engine, "tied_modules.t.weight").empty()) ++owners;
        fill_gradients(engine, uses, run.data);
        const double norm = engine.train_batch().grad_norm;
        engine.close();
        return norm;
      });
      for (const double norm : norms) {
        EXPECT_DOUBLE_EQ(norm, std::sqrt(800.0)) << "uses " << uses << ", pipe " << pipe;
      }
      most_owners = std::max(most_owners, owners.load());
    }
    EXPECT_GE(most_owners, static_cast<std::size_t>(uses)) << "no grid spread the copies";
  }
}

}  // namespace
}  // namespace penstock::testing
