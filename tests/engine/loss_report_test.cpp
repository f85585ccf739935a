// The loss that is reported: the mean over micro batches and replicas, the same on every rank; what
// is no loss is refused, never replaced by a number.
#include <mutex>

#include <gtest/gtest.h>

#include "tensor/log.h"
#include "tensor/ops/reduce.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using tensor::Tensor;

// The first label of a micro batch, whatever the outputs are.
class LabelLoss final : public model::Loss {
 public:
  model::LossResult forward(model::Context& context, std::span<const Tensor>,
                            std::span<const Tensor> labels) const override {
    const float value = labels[0].data<float>()[0];
    return {Tensor::from<float>(context, {}, std::span(&value, 1)), {}};
  }
};

// Micro batch m of replica r of two is global micro batch 2m + r; its label is 1 + m + 4r.
class Numbered final : public model::DataSource {
 public:
  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    auto batch = source_->next(rows);
    const std::int64_t global = batch->ids[0] % 8;
    batch->labels[0].data<float>()[0] = static_cast<float>(1 + global / 2 + 4 * (global % 2));
    return batch;
  }
  std::int64_t position() const override { return source_->position(); }
  void seek(std::int64_t position) override { source_->seek(position); }
  std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

 private:
  std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
};

class Lines final : public tensor::Log {
 public:
  void write(const tensor::LogEvent& event) noexcept override {
    const std::lock_guard lock(mutex_);
    text_ += event.message + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::string text_;
};

TEST(LossReport, IsTheMeanOverMicroBatchesAndReplicasOnEveryRank) {
  model::Module module = mlp8();
  module.loss = std::make_shared<LabelLoss>();
  const RunSpec run{.pipe = 4, .data = 2, .gas = 4, .more = R"({"steps_per_print": 1})"};
  Lines log;
  const auto results = on_ranks<engine::TrainResult>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), std::make_unique<Numbered>(),
                          {.log = &log});
    engine::TrainResult result = engine.train_batch();
    Numbered data;
    const engine::EvalResult eval = engine.eval_batch(data);
    EXPECT_EQ(eval.loss, 4.5);
    EXPECT_EQ(eval.micro_losses, result.micro_losses);
    engine.close();
    return result;
  });
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].loss, 4.5) << "rank " << rank;
    const bool first_replica = rank % 2 == 0;  // ranks run over replicas first
    EXPECT_EQ(results[rank].micro_losses,
              first_replica ? (std::vector{1.0, 2.0, 3.0, 4.0}) : (std::vector{5.0, 6.0, 7.0, 8.0}))
        << "rank " << rank;
    EXPECT_EQ(results[rank].replica_loss, first_replica ? 2.5 : 6.5) << "rank " << rank;
    EXPECT_EQ(results[rank].grad_norm, 0.0);
  }
  EXPECT_NE(log.text().find("step 1: loss 4.5000,"), std::string::npos) << log.text();
}

// Runs a step with a loss that is none; all ranks' errors.
std::vector<std::string> errors_with(std::shared_ptr<const model::Loss> loss) {
  model::Module module = mlp8();
  module.loss = std::move(loss);
  const RunSpec run{.pipe = 4};
  return on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), mlp_samples(64));
    return thrown_by([&] { engine.train_batch(); });
  });
}

void expect_all(const std::vector<std::string>& errors, const std::string& text) {
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nlacks: " << text;
  }
}

TEST(LossReport, ALossThatIsNoScalarIsRefused) {
  class Vector final : public model::Loss {
   public:
    model::LossResult forward(model::Context&, std::span<const Tensor> outputs,
                              std::span<const Tensor>) const override {
      return {outputs[0], {}};
    }
  };
  const auto errors = errors_with(std::make_shared<Vector>());
  EXPECT_TRUE(errors[3].starts_with("ExecutionError: ")) << errors[3];
  expect_all(errors, "[loss] expected a scalar of f32 or f64, got f32 [1, 16]");
}

TEST(LossReport, AnUndefinedLossIsRefused) {
  class Nothing final : public model::Loss {
   public:
    model::LossResult forward(model::Context&, std::span<const Tensor>,
                              std::span<const Tensor>) const override {
      return {};
    }
  };
  expect_all(errors_with(std::make_shared<Nothing>()), "[loss] expected a scalar of f32 or f64");
}

TEST(LossReport, AWeightThatIsNoNumberIsRefused) {
  class Weightless final : public model::Loss {
   public:
    model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                              std::span<const Tensor>) const override {
      return {tensor::mean(context, outputs[0]), {}};
    }
    double weight(std::span<const Tensor>) const override { return -1.0; }
  };
  expect_all(errors_with(std::make_shared<Weightless>()),
             "CallRefused: [train_batch] rank 3: the loss gave a micro batch the weight -1.0");
}

}  // namespace
}  // namespace penstock::testing
