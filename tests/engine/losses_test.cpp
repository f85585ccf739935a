// A model whose last layer gives the loss, and losses with named extras.
#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "model/losses/mse_loss.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using tensor::Tensor;

void expect_in_all(const std::vector<std::string>& errors, const std::string& text) {
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nlacks: " << text;
  }
}

Tensor mean_square(tensor::Context& context, const Tensor& x) {
  return tensor::mean(context, tensor::mul(context, x, x));
}

class MeanSquareLoss final : public model::Loss {
 public:
  model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                            std::span<const Tensor>) const override {
    return {mean_square(context, outputs[0]), {}};
  }
};

struct Trained {
  std::vector<double> losses, micro_losses;
  Weights weights;
};

// Three steps and an evaluation.
std::vector<Trained> runs_of(const model::Module& module, const RunSpec& run) {
  return on_ranks<Trained>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), mlp_samples(256));
    set_weights(engine, start_weights(module));
    Trained result;
    for (int step = 0; step < 3; ++step) {
      const engine::TrainResult trained = engine.train_batch();
      result.losses.push_back(trained.loss);
      result.micro_losses = trained.micro_losses;
    }
    result.losses.push_back(engine.eval_batch(*mlp_samples(64)).loss.value());
    result.weights = weights_of(engine);
    engine.close();
    return result;
  });
}

// --- no loss function

// Eight layers and a ninth that gives their loss.
model::Module ending_in_its_loss() {
  model::Module module = mlp8();
  module.loss = nullptr;
  module.layers.push_back(
      model::lambda("Loss", [](model::Context& context, std::span<const Tensor> x) {
        return std::vector{mean_square(context, x[0])};
      }));
  return module;
}

TEST(OutputAsLoss, TrainsAsALossFunctionDoes) {
  model::Module with_function = mlp8();
  with_function.loss = std::make_shared<MeanSquareLoss>();
  for (const int pipe : {1, 2, 4}) {
    for (const int data : {1, 2}) {
      SCOPED_TRACE(std::to_string(pipe) + " x " + std::to_string(data));
      const RunSpec run{.pipe = pipe, .data = data, .micro = 2};
      const std::vector<Trained> wanted = runs_of(with_function, run);
      ASSERT_NE(wanted[0].losses[0], wanted[0].losses[2]) << "nothing is trained";
      const std::vector<Trained> got = runs_of(ending_in_its_loss(), run);
      Weights wanted_weights, weights;
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        EXPECT_EQ(got[rank].losses, wanted[0].losses);
        EXPECT_EQ(got[rank].micro_losses, wanted[rank].micro_losses);
        wanted_weights.merge(Weights(wanted[rank].weights));
        weights.merge(Weights(got[rank].weights));
      }
      EXPECT_EQ(weights, wanted_weights);
    }
  }
}

std::vector<std::string> errors_of(const model::Module& module, const RunSpec& run) {
  return on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), mlp_samples(64));
    return thrown_by([&] { engine.train_batch(); });
  });
}

TEST(OutputAsLoss, AnythingButOneScalarIsRefused) {
  model::Module module = mlp8();
  module.loss = nullptr;
  expect_in_all(errors_of(module, {.pipe = 2, .micro = 3}),
                "[loss] the module has no loss, so its last layer must give one: expected one "
                "scalar of f32 or f64, got 1 output: f32 [3, 16] on cpu; set Module::loss");
  module.layers.push_back(
      model::lambda("Pair", [](model::Context& context, std::span<const Tensor> x) {
        return std::vector{mean_square(context, x[0]), x[0]};
      }));
  expect_in_all(errors_of(module, {.pipe = 3, .micro = 3}),
                "got 2 outputs: f32 [] on cpu, f32 [3, 16] on cpu");
}

// --- extras

// A mean squared error with two extras, told from the labels: of a micro batch the number that the
// labels begin with, and its square. Weighs a micro batch by that number.
class TwoExtras final : public model::Loss {
 public:
  model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                            std::span<const Tensor> labels) const override {
    const Tensor number = scalar(context, number_of(labels));
    return {model::MseLoss().forward(context, outputs, labels).loss,
            {{"number", number}, {"a square", tensor::mul(context, number, number)}}};
  }
  double weight(std::span<const Tensor> labels) const override { return number_of(labels); }

  static double number_of(std::span<const Tensor> labels) { return labels[0].data<float>()[0]; }

 private:
  static Tensor scalar(tensor::Context& context, double value) {
    return Tensor::from<double>(context, {}, std::span(&value, 1));
  }
};

// Labels of the global micro batch g of a step (8 rows of one sample each) begin with g.
class Numbered final : public model::DataSource {
 public:
  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    auto batch = source_->next(rows);
    batch->labels[0].data<float>()[0] = static_cast<float>(batch->ids[0] % 8);
    return batch;
  }
  std::int64_t position() const override { return source_->position(); }
  void seek(std::int64_t position) override { source_->seek(position); }
  std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

 private:
  std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
};

TEST(ExtraLosses, AreAveragedAsTheLossOnEveryRankAndTrainNothing) {
  // Micro batch m of replica r is g = 2m + r, with weight g: of 0 … 7 the weights sum to 28.
  const double number = (0 + 1 + 4 + 9 + 16 + 25 + 36 + 49) / 28.0;
  const double square = (0 + 1 + 8 + 27 + 64 + 125 + 216 + 343) / 28.0;
  model::Module module = mlp8();
  module.loss = std::make_shared<TwoExtras>();
  for (const std::string pipeline :
       {R"({"schedule": "1f1b"})", R"({"schedule": "interleaved_1f1b", "chunks": 2})"}) {
    const RunSpec run{.pipe = 2, .data = 2, .gas = 4, .more = R"({"pipeline": )" + pipeline + "}"};
    on_ranks<int>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, module, config_of(run), std::make_unique<Numbered>());
      const engine::TrainResult trained = engine.train_batch();
      Numbered data;
      const engine::EvalResult eval = engine.eval_batch(data);
      const double r = world.rank() % 2;
      const std::vector<double> numbers{r, 2 + r, 4 + r, 6 + r};
      const std::vector<double> squares{r * r, (2 + r) * (2 + r), (4 + r) * (4 + r),
                                        (6 + r) * (6 + r)};
      const std::map<std::string, double> extras{{"number", number}, {"a square", square}};
      const std::map<std::string, std::vector<double>> micro_extras{{"number", numbers},
                                                                    {"a square", squares}};
      EXPECT_EQ(trained.extras, extras);
      EXPECT_EQ(trained.micro_extras, micro_extras);
      EXPECT_EQ(eval.extras, extras);
      EXPECT_EQ(eval.micro_extras, micro_extras);
      EXPECT_GT(trained.grad_norm, 0.0);
      double sum = 0.0, weights = 0.0;
      for (std::size_t m = 0; m < numbers.size(); ++m) {
        sum += numbers[m] * trained.micro_losses[m];
        weights += numbers[m];
      }
      EXPECT_EQ(trained.replica_loss, sum / weights);
      engine.close();
      return 0;
    });
  }
}

// The bits of training with extras and without.
TEST(ExtraLosses, ChangeNoWeight) {
  class Plain final : public model::Loss {
   public:
    model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                              std::span<const Tensor> labels) const override {
      return {model::MseLoss().forward(context, outputs, labels).loss, {}};
    }
  };
  class WithExtra final : public model::Loss {
   public:
    model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                              std::span<const Tensor> labels) const override {
      return {model::MseLoss().forward(context, outputs, labels).loss,
              {{"mean square", mean_square(context, outputs[0])}}};
    }
  };
  const RunSpec run{.pipe = 2, .micro = 2};
  model::Module module = mlp8();
  module.loss = std::make_shared<Plain>();
  const std::vector<Trained> wanted = runs_of(module, run);
  module.loss = std::make_shared<WithExtra>();
  const std::vector<Trained> got = runs_of(module, run);
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    EXPECT_EQ(got[rank].losses, wanted[rank].losses);
    EXPECT_EQ(got[rank].weights, wanted[rank].weights);
  }
}

// Extras by a function of the micro batch's first sample.
class Named final : public model::Loss {
 public:
  using Extras = std::vector<std::pair<std::string, Tensor>>;
  using Make = std::function<Extras(model::Context& context, const Tensor& value)>;
  explicit Named(Make make) : make_(std::move(make)) {}
  model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                            std::span<const Tensor>) const override {
    const Tensor value = mean_square(context, outputs[0]);
    return {value, make_(context, value)};
  }

 private:
  Make make_;
};

TEST(ExtraLosses, ThatDoNotFitAreRefused) {
  const auto errors = [](const RunSpec& run, Named::Make make) {
    model::Module module = mlp8();
    module.loss = std::make_shared<Named>(std::move(make));
    return errors_of(module, run);
  };
  const RunSpec pipe{.pipe = 2};
  expect_in_all(errors(pipe,
                       [](auto& context, const Tensor& value) -> Named::Extras {
                         if (context.micro_batch == 2) return {{"b", value}, {"a", value}};
                         return {{"a", value}};
                       }),
                "the extra losses of micro batch 2 are \"a\", \"b\", those of an earlier one "
                "\"a\"");
  expect_in_all(errors(pipe,
                       [](auto&, const Tensor& value) -> Named::Extras {
                         return {{"a", value}, {"b", value}, {"a", value}};
                       }),
                "there are two extra losses \"a\"");
  expect_in_all(errors(pipe,
                       [](auto&, const Tensor&) -> Named::Extras {
                         return {{"a", Tensor()}};
                       }),
                "expected the extra loss \"a\" to be a scalar, got an undefined tensor");
  expect_in_all(errors(pipe,
                       [](auto&, const Tensor& value) -> Named::Extras {
                         return {{"", value}};
                       }),
                "an extra loss has the name \"\"");
  // Replica 1 begins with sample 1.
  const auto by_replica = errors({.pipe = 1, .data = 2}, [](auto& context, const Tensor& value) {
    return context.sample_ids[0] % 2 == 0 ? Named::Extras{} : Named::Extras{{"a", value}};
  });
  expect_in_all(by_replica, "the extra losses of this replica are ");
  expect_in_all(by_replica, "expected the same names on all");
}

}  // namespace
}  // namespace penstock::testing
