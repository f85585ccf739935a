// What crosses the edge between two stages: tuples of tensors of which only some have a gradient,
// and shapes that change from one micro batch to the next.
#include <cmath>

#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/cast.h"
#include "tensor/ops/elementwise.h"
#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

using model::Tensor;
using Tensors = std::vector<Tensor>;

// --- tuples

// Which tensor of the tuple is what.
struct Layout {
  std::size_t h, rope, mask, place, size;
};
constexpr Layout kHiddenFirst{0, 3, 1, 2, 4};
constexpr Layout kRopeFirst{1, 0, 2, 3, 4};

// h' = tanh(linear(h) + rope) · mask + place / 8; the others pass through as they are.
class TupleLayer final : public model::Layer {
 public:
  explicit TupleLayer(Layout layout)
      : layout_(layout),
        linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth))) {}

  Tensors forward(model::Context& context, std::span<const Tensor> x) override {
    model::expect_inputs("tuple", x, layout_.size);
    const Tensor sum = tensor::add(context, linear_.apply(context, x[layout_.h]), x[layout_.rope]);
    const Tensor mask = tensor::cast(context, x[layout_.mask], tensor::DType::kF32);
    const Tensor place = tensor::cast(context, x[layout_.place], tensor::DType::kF32);
    const Tensor kept = tensor::mul(context, tensor::tanh(context, sum), mask);
    Tensors outputs(x.begin(), x.end());
    outputs[layout_.h] = tensor::add(context, kept, tensor::scale(context, place, 0.125));
    return outputs;
  }

 private:
  Layout layout_;
  model::Linear& linear_;
};

// The mean squared error of one tensor of the tuple.
class TupleLoss final : public model::Loss {
 public:
  explicit TupleLoss(std::size_t which) : which_(which) {}
  model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                            std::span<const Tensor> labels) const override {
    return model::MseLoss().forward(context, outputs.subspan(which_, 1), labels);
  }

 private:
  std::size_t which_;
};

// The samples of mlp8 with the other tensors of the layout beside x.
class TupleSource final : public model::DataSource {
 public:
  explicit TupleSource(Layout layout) : layout_(layout) {}

  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    auto batch = source_->next(rows);
    if (!batch) return batch;
    std::vector<float> rope;
    std::vector<std::uint8_t> mask;
    std::vector<std::int64_t> place;
    for (const std::int64_t id : batch->ids) {
      for (std::int64_t k = 0; k < kWidth; ++k) {
        rope.push_back(static_cast<float>(std::sin(static_cast<double>(id - 2 * k))));
        mask.push_back((id + k) % 3 == 0 ? 0 : 1);
        place.push_back(k - 8);
      }
    }
    const tensor::Context context(tensor::make_cpu_allocator());
    const tensor::Shape shape{rows, kWidth};
    Tensors inputs(layout_.size);
    inputs[layout_.h] = batch->inputs[0];
    inputs[layout_.rope] = Tensor::from<float>(context, shape, rope);
    inputs[layout_.mask] =
        Tensor::from_bytes(context, shape, tensor::DType::kBool, std::as_bytes(std::span(mask)));
    inputs[layout_.place] = Tensor::from<std::int64_t>(context, shape, place);
    batch->inputs = std::move(inputs);
    return batch;
  }
  std::int64_t position() const override { return source_->position(); }
  void seek(std::int64_t position) override { source_->seek(position); }
  std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

 private:
  Layout layout_;
  std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
};

model::Module tuple_module(Layout layout, int frozen_layers = 0) {
  model::Module module;
  for (int i = 0; i < 6; ++i) {
    module.layers.push_back(model::layer<TupleLayer>("Tuple", layout));
    module.layers.back().frozen = i < frozen_layers;
  }
  module.loss = std::make_shared<TupleLoss>(layout.h);
  return module;
}

struct Outcome {
  double loss = 0.0;
  Weights weights;
};

// Three steps of plain SGD on a grid.
Outcome train(const RunSpec& run, const model::Module& module,
              const std::function<std::unique_ptr<model::DataSource>()>& source, int steps) {
  const Weights start = start_weights(module);
  const auto by_rank = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), source());
    set_weights(engine, start);
    Outcome outcome;
    for (int step = 0; step < steps; ++step) outcome.loss = engine.train_batch().loss;
    outcome.weights = weights_of(engine);
    engine.close();
    return outcome;
  });
  std::vector<Weights> weights;
  for (const Outcome& outcome : by_rank) weights.push_back(outcome.weights);
  return {by_rank[0].loss, merged(weights)};
}

void check_tuples(const model::Module& module,
                  const std::function<std::unique_ptr<model::DataSource>()>& source) {
  constexpr int kSteps = 3;
  Reference reference(module, start_weights(module));
  const auto data = source();
  double loss = 0.0;
  for (int step = 0; step < kSteps; ++step) {
    reference.clear();
    loss = reference.accumulate(take(*data, 8));
    reference.sgd(0.1);
  }
  for (const auto& [pipe, replicas] : {std::pair{1, 1}, {3, 1}, {6, 1}, {3, 2}}) {
    SCOPED_TRACE("pipe " + std::to_string(pipe) + ", data " + std::to_string(replicas));
    const RunSpec run{
        .pipe = pipe, .data = replicas, .micro = 2, .gas = 4 / replicas, .more = kUniform};
    const Outcome outcome = train(run, module, source, kSteps);
    EXPECT_NEAR(outcome.loss, loss, 1e-5 * loss);
    expect_close(outcome.weights, reference.weights());
  }
}

TEST(StageTuples, AFloatWithoutGradientBesideOneWith) {
  for (const Layout& layout : {kHiddenFirst, kRopeFirst}) {
    check_tuples(tuple_module(layout), [&] { return std::make_unique<TupleSource>(layout); });
  }
}

// Two tensors with gradients, one without between them, and the first one a second time; the last
// layer adds up all that must have a gradient.
TEST(StageTuples, ATensorWithoutGradientBetweenTwoWith) {
  class Pair final : public model::Layer {
   public:
    Pair() : linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth))) {}
    Tensors forward(model::Context& context, std::span<const Tensor> x) override {
      if (x.size() == 1) {  // the first layer: a constant, and a copy of x with gradient
        const Tensor h = tensor::tanh(context, linear_.apply(context, x[0]));
        return {h, x[0], tensor::scale(context, h, 0.5), h};
      }
      const Tensor sum = tensor::add(context, tensor::add(context, x[0], x[1]), x[3]);
      const Tensor h = tensor::tanh(context, linear_.apply(context, sum));
      return {h, x[1], tensor::add(context, x[2], h), h};
    }

   private:
    model::Linear& linear_;
  };
  model::Module module;
  for (int i = 0; i < 6; ++i) module.layers.push_back(model::layer<Pair>("Pair"));
  module.loss = std::make_shared<TupleLoss>(2);
  check_tuples(module, [] { return mlp_samples(64); });
}

// Nothing upstream is trained, so no tensor needs a gradient and no gradient message is sent.
TEST(StageTuples, FrozenUpstreamStagesHaveNoBackward) {
  const model::Module module = tuple_module(kHiddenFirst, /*frozen_layers=*/4);
  check_tuples(module, [] { return std::make_unique<TupleSource>(kHiddenFirst); });
  const Weights start = start_weights(module);
  const Outcome outcome = train(
      {.pipe = 3, .micro = 2, .more = kUniform}, module,
      [] { return std::make_unique<TupleSource>(kHiddenFirst); }, 3);
  for (const auto& [name, values] : start) {
    const bool frozen = name[0] < '4';
    EXPECT_EQ(outcome.weights.at(name) == values, frozen) << name;
  }
}

// --- shapes

// Samples [length, 16], of a length that depends on the sample.
class Lengths final : public model::DataSource {
 public:
  // shape_of gives the shape behind the rows axis.
  using ShapeOf = std::vector<std::int64_t> (*)(std::int64_t sample);
  explicit Lengths(ShapeOf shape_of) : shape_of_(shape_of) {}

  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    std::vector<std::int64_t> dims = shape_of_(position_);
    dims.insert(dims.begin(), rows);
    const tensor::Shape shape{std::span<const std::int64_t>(dims)};
    std::vector<float> x, target;
    for (std::int64_t k = 0; k < shape.numel(); ++k) {
      x.push_back(static_cast<float>(std::sin(0.3 * static_cast<double>(k + 5 * position_))));
      target.push_back(static_cast<float>(0.5 * std::cos(0.2 * static_cast<double>(k))));
    }
    const tensor::Context context(tensor::make_cpu_allocator());
    model::MicroBatch batch;
    batch.inputs = {Tensor::from<float>(context, shape, x)};
    batch.labels = {Tensor::from<float>(context, shape, target)};
    for (std::int64_t row = 0; row < rows; ++row) batch.ids.push_back(position_++);
    return batch;
  }
  std::int64_t position() const override { return position_; }
  void seek(std::int64_t position) override { position_ = position; }
  std::optional<std::int64_t> remaining() const override { return std::nullopt; }

 private:
  ShapeOf shape_of_;
  std::int64_t position_ = 0;
};

// Steps of four micro batches of one sample each, on three stages, against a run without any.
void check_shapes(const model::Module& module, Lengths::ShapeOf shape_of, int steps) {
  Reference reference(module, start_weights(module));
  Lengths data(shape_of);
  double loss = 0.0;
  for (int step = 0; step < steps; ++step) {
    reference.clear();
    loss = 0.0;
    for (int m = 0; m < 4; ++m) loss += reference.accumulate(take(data, 1), 0.25) / 4;
    reference.sgd(0.1);
  }
  for (const int pipe : {1, 3, 4}) {
    const Outcome outcome = train(
        {.pipe = pipe}, module, [&] { return std::make_unique<Lengths>(shape_of); }, steps);
    EXPECT_NEAR(outcome.loss, loss, 1e-5 * loss) << "pipe " << pipe;
    expect_close(outcome.weights, reference.weights());
  }
}

TEST(StageShapes, LengthsChangeBetweenMicroBatchesAndSteps) {
  check_shapes(
      mlp8(),
      [](std::int64_t sample) {
        constexpr std::array<std::int64_t, 8> kLengths{8, 16, 4, 12, 6, 6, 6, 6};
        return std::vector{kLengths[static_cast<std::size_t>(sample % 8)], kWidth};
      },
      3);
}

TEST(StageShapes, RanksChangeBetweenMicroBatches) {
  check_shapes(
      mlp8(),
      [](std::int64_t sample) {
        if (sample % 2 == 0) return std::vector{kWidth};
        return std::vector{std::int64_t{2}, std::int64_t{3}, kWidth};
      },
      2);
}

TEST(StageShapes, AnEvaluationMayBeLonger) {
  const RunSpec run{.pipe = 3};
  const model::Module module = mlp8();
  const auto losses = on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
    const auto six = [](std::int64_t) { return std::vector{std::int64_t{6}, kWidth}; };
    const auto twenty = [](std::int64_t) { return std::vector{std::int64_t{20}, kWidth}; };
    engine::Engine engine(world, module, config_of(run), std::make_unique<Lengths>(six));
    set_weights(engine, start_weights(module));
    Lengths long_ones(twenty);
    std::vector<double> result{engine.eval_batch(long_ones).loss.value()};
    engine.train_batch();
    result.push_back(engine.eval_batch(long_ones).loss.value());
    engine.close();
    return result;
  });
  Reference reference(module, start_weights(module));
  Lengths data([](std::int64_t) { return std::vector{std::int64_t{20}, kWidth}; });
  double wanted = 0.0;
  for (int m = 0; m < 4; ++m) wanted += reference.accumulate(take(data, 1)) / 4;
  EXPECT_NEAR(losses[0][0], wanted, 1e-5 * wanted);
  EXPECT_NE(losses[0][1], losses[0][0]);
  EXPECT_EQ(losses[1], losses[0]);
}

// A scalar, and a tensor without elements, beside the activation. (A view that is not contiguous
// does not exist here: every tensor is.)
TEST(StageShapes, ScalarsAndEmptyTensorsCross) {
  class WithExtras final : public model::Layer {
   public:
    WithExtras() : linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth))) {}
    Tensors forward(model::Context& context, std::span<const Tensor> x) override {
      Tensors outputs(x.begin(), x.end());
      if (x.size() == 1) {
        const float half = 0.5f;
        outputs.push_back(Tensor::from<float>(context, {}, std::span(&half, 1)));
        outputs.push_back(Tensor::zeros(context, {0, kWidth}, tensor::DType::kF32));
      }
      if (outputs[1].shape().rank() != 0 || outputs[1].item() != 0.5) {
        throw std::logic_error("the scalar came as " + outputs[1].to_string());
      }
      if (outputs[2].shape() != tensor::Shape{0, kWidth}) {
        throw std::logic_error("the empty tensor came as " + outputs[2].to_string());
      }
      // The empty tensor gets a gradient too, as empty as itself.
      outputs[2] = linear_.apply(context, outputs[2]);
      outputs[0] =
          tensor::tanh(context, tensor::mul(context, linear_.apply(context, x[0]), outputs[1]));
      return outputs;
    }

   private:
    model::Linear& linear_;
  };
  model::Module module;
  for (int i = 0; i < 6; ++i) module.layers.push_back(model::layer<WithExtras>("WithExtras"));
  module.loss = std::make_shared<TupleLoss>(0);
  check_tuples(module, [] { return mlp_samples(64); });
}

// A micro batch without rows is no micro batch.
TEST(StageShapes, NoRowsAreRefused) {
  const RunSpec run{.pipe = 3, .gas = 2};
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    class Empty final : public model::DataSource {
     public:
      std::optional<model::MicroBatch> next(std::int64_t rows) override {
        auto batch = source_->next(rows);
        if (++calls_ == 2) batch->inputs[0] = batch->inputs[0].rows(0, 0);
        return batch;
      }
      std::int64_t position() const override { return source_->position(); }
      void seek(std::int64_t position) override { source_->seek(position); }
      std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

     private:
      std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
      int calls_ = 0;
    };
    engine::Engine engine(world, mlp8(), config_of(run), std::make_unique<Empty>());
    const std::string error = thrown_by([&] { engine.train_batch(); });
    engine.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("input 0 of micro batch 1 to have 1 rows, got f32 [0, 16]"),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace penstock::testing
