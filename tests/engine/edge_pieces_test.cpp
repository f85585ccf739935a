// What all ranks of a model group have crosses stage edges in pieces, and nobody notices but the
// memory.
#include "engine/edge_pieces.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>

#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "tests/engine/model_axis_runs.h"
#include "tests/engine/reference.h"

namespace penstock::testing {
namespace {

using engine::Holding;
using tensor::DType;
using tensor::Tensor;

std::string pipeline(const std::string& schedule, bool activations, bool gradients) {
  const auto text = [](bool flag) { return std::string(flag ? "true" : "false"); };
  return R"({"pipeline": {"schedule": ")" + schedule + R"(", "pipe_partitioned": )" +
         text(activations) + R"(, "grad_partitioned": )" + text(gradients) + "}}";
}

TEST(EdgePieces, GiveTheSameBits) {
  for (const std::string schedule : {"1f1b", "zb_h1", "zbv"}) {
    const auto run = [&](bool activations, bool gradients) {
      return train(
          {.grid = {2, 1, 2}, .steps = 3, .more = pipeline(schedule, activations, gradients)});
    };
    const Trained whole = run(false, false);
    for (const auto& [activations, gradients] :
         {std::pair{true, true}, {true, false}, {false, true}}) {
      EXPECT_EQ(run(activations, gradients), whole) << schedule << activations << gradients;
    }
  }
}

struct Memory {
  engine::RankMemory plan;
  engine::MeasuredMemory measured;
};

std::vector<Memory> measure(const ModelGrid& grid, const std::string& pipeline) {
  return on_ranks<Memory>(grid.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, small_gpt2(), config_of(grid, kClippedAdamW, pipeline),
                          small_tokens());
    Memory memory;
    memory.plan = engine.planned_memory(take(*small_tokens(), 2));
    engine.measure_memory(engine::SendTiming::kLastLegalPoint);
    engine.train_batch();
    memory.measured = engine.measured_memory();
    engine.close();
    return memory;
  });
}

TEST(EdgePieces, TakeTheMemoryThatIsPlanned) {
  for (const std::string schedule : {"1f1b", "zb_h1", "zbv"}) {
    for (const bool pieces : {false, true}) {
      for (const ModelGrid& grid :
           {ModelGrid{2, 1, 2}, ModelGrid{2, 1, 4}, ModelGrid{2, 1, 2, true}}) {
        SCOPED_TRACE(schedule + " on " + grid.text() + (pieces ? " in pieces" : ""));
        for (const Memory& rank : measure(grid, pipeline(schedule, pieces, pieces))) {
          EXPECT_EQ(rank.measured.last, rank.plan.pipe_buffers);
        }
      }
    }
  }
  const ModelGrid grid{2, 1, 4};
  const auto bytes = [&](bool pieces) {
    return measure(grid, pipeline("1f1b", pieces, pieces))[0].plan.pipe_buffers;
  };
  EXPECT_GT(bytes(false)[Holding::kInFlight], 0);
  EXPECT_EQ(4 * bytes(true)[Holding::kInFlight], bytes(false)[Holding::kInFlight]);
}

TEST(EdgePieces, AnyLengthComesTogetherBitForBit) {
  for (const int size : {2, 3, 4}) {
    on_ranks<bool>(size, [&](comm::World& world) {
      model::Context context(tensor::make_cpu_allocator());
      context.model = {.size = size, .rank = world.rank()};
      context.model_group = &world.all();
      for (const tensor::Shape& shape :
           {tensor::Shape{}, {0, 4}, {1}, {3, 5}, {4, 6}, {1, 2, 1, 7}}) {
        std::vector<float> values(static_cast<std::size_t>(shape.numel()));
        std::iota(values.begin(), values.end(), 1.0f);
        if (!values.empty()) values.back() = -std::numeric_limits<float>::quiet_NaN();
        const Tensor whole = Tensor::from<float>(context, shape, values);
        const Tensor piece = engine::own_piece(context, whole);
        EXPECT_EQ(piece.shape(), engine::piece_shape(context.model, shape));
        EXPECT_EQ(piece.numel(), (shape.numel() + size - 1) / size);
        const Tensor back = engine::join_pieces(context, piece, shape);
        EXPECT_EQ(back.shape(), shape);
        EXPECT_TRUE(std::ranges::equal(std::span(back.raw(), back.nbytes()),
                                       std::span(whole.raw(), whole.nbytes())));
      }
      return true;
    });
  }
}

// Five numbers per sample and then one cross the edges, beside ids, flags and numbers that need no
// gradient.
TEST(EdgePieces, TensorsWithoutAGradientTravelWhole) {
  const auto give = [](model::Context& context, std::span<const Tensor> x) {
    return std::vector{x[0], Tensor::from<std::int64_t>(context, {2}, std::array{-1L, 1L << 40}),
                       Tensor::from<float>(context, {3}, std::array{0.5f, 1.5f, 2.5f})};
  };
  const auto check = [](model::Context& context, std::span<const Tensor> x) {
    EXPECT_EQ(x.size(), 3u);
    EXPECT_EQ(x[1].dtype(), DType::kI64);
    if (!context.allocator->device().is_meta()) {
      EXPECT_EQ(x[1].span<std::int64_t>()[1], 1L << 40);
      EXPECT_EQ(x[2].span<float>()[2], 2.5f);
    }
    return std::vector{x[0]};
  };
  model::Module module;
  module.layers = {model::layer<model::Linear>("Linear", 16, 5), model::lambda("Give", give),
                   model::lambda("Check", check), model::layer<model::Linear>("Linear", 5, 1),
                   model::layer<model::Linear>("Linear", 1, 16)};
  module.loss = std::make_shared<model::MseLoss>();
  const auto run = [&](int pipe, int size, const std::string& bounds) {
    return on_ranks<Weights>(pipe * size, [&](comm::World& world) {
      engine::Engine engine(world, module,
                            config_of(RunSpec{.pipe = pipe,
                                              .more = R"({"pipeline": {"bounds": )" + bounds +
                                                      R"(}, "tensor_parallel": {"size": )" +
                                                      std::to_string(size) + "}}"}),
                            mlp_samples(64));
      set_weights(engine, start_weights(module));
      for (int step = 0; step < 3; ++step) engine.train_batch();
      const Weights weights = weights_of(engine);
      engine.close();
      return weights;
    });
  };
  EXPECT_EQ(merged(run(3, 2, "[0, 2, 4, 5]")), run(1, 1, "[0, 5]")[0]);
}

}  // namespace
}  // namespace penstock::testing
