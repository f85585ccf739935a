// Tensors of every dtype cross the edges between stages bit for bit, in number and order, in
// training and evaluation.
#include <cstring>
#include <stdexcept>

#include <gtest/gtest.h>

#include "model/layers/linear.h"
#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/reduce.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::vector<Tensor>;

// Values that change when they pass through another dtype on the way.
template <class T>
Tensor row_of(std::vector<T> values) {
  const tensor::Context context(tensor::make_cpu_allocator());
  return Tensor::from<T>(context, {1, std::ssize(values)}, values);
}

Tensor bits_of(DType dtype, std::vector<std::uint8_t> bytes) {
  const tensor::Context context(tensor::make_cpu_allocator());
  const std::int64_t size = std::ssize(bytes) / static_cast<std::int64_t>(tensor::size_of(dtype));
  return Tensor::from_bytes(context, {1, size}, dtype, std::as_bytes(std::span(bytes)));
}

// What goes beside the activation, of one sample.
Tensors companions(std::int64_t sample) {
  constexpr std::int64_t kBeyondF32 = 16777217, kBeyondF16 = 2049;
  return {bits_of(DType::kBool, {1, 0, 1, 1}),
          row_of<std::int64_t>({kBeyondF32, kBeyondF16, -1, std::int64_t{1} << 40, sample}),
          row_of<std::int32_t>({16777217, -2049, 2147483647}),
          row_of<std::int16_t>({2049, -32768}),
          row_of<std::uint8_t>({0, 127, 128, 255}),
          row_of<std::int8_t>({-128, -1, 127}),
          row_of<double>({0.1, 1e300, -5e-324, static_cast<double>(sample)}),
          bits_of(DType::kF16, {0x01, 0x00, 0xff, 0x7b}),    // the least and the greatest
          bits_of(DType::kBF16, {0x81, 0x3f, 0x7f, 0x7f})};  // beyond f16
}

// Which of them go: `count`, with the first one a second time.
struct Choice {
  std::size_t count = 0;
  bool twice = false;
};

Tensors chosen(std::int64_t sample, const Choice& choice) {
  Tensors all = companions(sample);
  all.resize(choice.count);
  if (choice.twice) all.push_back(all.front());
  return all;
}

void require_equal(std::span<const Tensor> got, const Tensors& wanted) {
  if (got.size() != wanted.size()) {
    throw std::logic_error(std::to_string(got.size()) + " tensors came, not " +
                           std::to_string(wanted.size()));
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].dtype() != wanted[i].dtype() || got[i].shape() != wanted[i].shape() ||
        std::memcmp(got[i].raw(), wanted[i].raw(), wanted[i].nbytes()) != 0) {
      throw std::logic_error("tensor " + std::to_string(i) + " came as " + got[i].to_string());
    }
  }
}

// tanh of a linear layer on the activation; what is beside it is checked and passed on.
class Carrier final : public model::Layer {
 public:
  explicit Carrier(Choice choice)
      : choice_(choice),
        linear_(add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth))) {}

  Tensors forward(model::Context& context, std::span<const Tensor> x) override {
    require_equal(x.subspan(1), chosen(context.sample_ids[0], choice_));
    Tensors outputs(x.begin(), x.end());
    outputs[0] = tensor::tanh(context, linear_.apply(context, x[0]));
    return outputs;
  }

 private:
  Choice choice_;
  model::Linear& linear_;
};

class MeanSquare final : public model::Loss {
 public:
  model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                            std::span<const Tensor>) const override {
    return {tensor::mean(context, tensor::mul(context, outputs[0], outputs[0])), {}};
  }
};

std::unique_ptr<model::DataSource> plain_samples() {
  return mlp_samples(64);
}

// Trains two steps and evaluates; returns the losses, and throws where a tensor came otherwise.
std::vector<double> losses(const RunSpec& run, const Choice& choice) {
  model::Module module;
  for (int i = 0; i < 6; ++i) module.layers.push_back(model::layer<Carrier>("Carrier", choice));
  module.loss = std::make_shared<MeanSquare>();
  return on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), plain_samples());
    set_weights(engine, start_weights(module));
    engine.set_batch_fn([&](model::MicroBatch data, const engine::MicroBatchPlace&) {
      for (Tensor& tensor : chosen(data.ids[0], choice)) data.inputs.push_back(std::move(tensor));
      return data;
    });
    std::vector<double> result;
    for (int step = 0; step < 2; ++step) result.push_back(engine.train_batch().loss);
    const engine::EvalResult eval = engine.eval_batch(
        *plain_samples(), {.micro_batches = 3, .outputs = engine::EvalOutputs::kMicroBatches});
    for (std::size_t m = 0; m < eval.outputs.size(); ++m) {  // on the last stage
      require_equal(std::span(eval.outputs[m]).subspan(1),
                    chosen(static_cast<std::int64_t>(m), choice));
    }
    result.push_back(eval.loss.value());
    engine.close();
    return result;
  })[0];
}

TEST(DtypeTuples, ArriveBitForBitWhateverTheyAre) {
  const std::vector<double> wanted = losses({.pipe = 1}, {});
  ASSERT_NE(wanted[0], wanted[1]) << "nothing is trained";
  const std::size_t all = companions(0).size();
  EXPECT_EQ(all, 9u);
  for (const Choice choice : {Choice{}, Choice{6, false}, Choice{all, false}, Choice{all, true}}) {
    for (const std::string pipeline :
         {R"({"schedule": "1f1b"})", R"({"schedule": "interleaved_1f1b", "chunks": 2})",
          R"({"schedule": "zbv", "chunks": 2})"}) {
      SCOPED_TRACE(std::to_string(choice.count) + " beside it, " + pipeline);
      EXPECT_EQ(losses({.pipe = 3, .more = R"({"pipeline": )" + pipeline + "}"}, choice), wanted);
    }
  }
}

}  // namespace
}  // namespace penstock::testing
