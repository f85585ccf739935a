// The learning rate that an update really had: the weight starts each step at 0 and its gradient is
// 1, so plain SGD leaves -lr.
#include <cmath>
#include <limits>
#include <numbers>

#include <gtest/gtest.h>

#include "model/layers/lambda.h"
#include "model/layers/linear.h"
#include "tensor/ops/reduce.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using tensor::Tensor;

constexpr int kSteps = 24;  // past the end of the schedules, which is 20
constexpr int kNever = -1;
const std::string kWeight = "0.weight";

class MeanOutput final : public model::Loss {
 public:
  model::LossResult forward(model::Context& context, std::span<const Tensor> outputs,
                            std::span<const Tensor>) const override {
    return {tensor::mean(context, outputs[0]), {}};
  }
};

// x = 1, forever.
class Ones final : public model::DataSource {
 public:
  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    const tensor::Context context(tensor::make_cpu_allocator());
    const std::vector<float> ones(static_cast<std::size_t>(rows), 1.0f);
    model::MicroBatch batch;
    batch.inputs = {Tensor::from<float>(context, {rows, 1}, ones)};
    batch.labels = batch.inputs;
    for (std::int64_t row = 0; row < rows; ++row) batch.ids.push_back(position_++);
    return batch;
  }
  std::int64_t position() const override { return position_; }
  void seek(std::int64_t position) override { position_ = position; }
  std::optional<std::int64_t> remaining() const override { return std::nullopt; }

 private:
  std::int64_t position_ = 0;
};

model::Module one_weight() {
  model::Module module;
  module.layers = {model::layer<model::Linear>("Linear", 1, 1, model::LinearOptions{.bias = false}),
                   model::lambda("Same", [](model::Context&, std::span<const Tensor> x) {
                     return std::vector(x.begin(), x.end());
                   })};
  module.loss = std::make_shared<MeanOutput>();
  return module;
}

struct Applied {
  std::vector<double> rates;     // by step: what the weight moved by
  std::vector<double> reported;  // by step: TrainResult::lr
  std::int64_t skipped = 0;
};

// Trains up to a step, from wherever the engine is; the gradient of step `bad` is infinite.
void train_to(engine::Engine& engine, int step, int bad, Applied& applied) {
  engine.replace_handler(
      schedule::Opcode::kBackwardPass, [&](const auto&, const std::function<void()>& run) {
        run();
        if (engine.global_steps() != bad - 1 || engine.stages().front()->slots().empty()) return;
        engine.stages().front()->slots()[0].grad.data<float>()[0] =
            std::numeric_limits<float>::infinity();
      });
  while (engine.global_steps() < step) {
    set_values(engine, kWeight, std::vector{0.0f});
    const engine::TrainResult result = engine.train_batch();
    EXPECT_EQ(result.skipped, engine.global_steps() == bad);
    applied.reported.push_back(result.lr[0]);
    if (engine.is_first_stage()) applied.rates.push_back(-values_of(engine, kWeight)[0]);
  }
  applied.skipped = engine.skipped_steps();
}

// kSteps steps, with a save, a new engine and a load after `resume_at` of them.
Applied run(const engine::Config& before, const engine::Config& after, int resume_at, int bad) {
  const TemporaryFolder folder;
  return on_ranks<Applied>(2, [&](comm::World& world) {
    Applied applied;
    {
      engine::Engine engine(world, one_weight(), before, std::make_unique<Ones>());
      train_to(engine, resume_at == kNever ? kSteps : resume_at, bad, applied);
      if (resume_at != kNever) engine.save_checkpoint(folder.path());
      engine.close();
    }
    if (resume_at == kNever) return applied;
    engine::Engine engine(world, one_weight(), after, std::make_unique<Ones>());
    engine.load_checkpoint(folder.path());
    EXPECT_EQ(engine.global_steps(), resume_at);
    train_to(engine, kSteps, bad, applied);
    engine.close();
    return applied;
  })[0];
}

engine::Config config_with(double optimizer_lr, const std::string& scheduler) {
  return config_of(
      {.pipe = 2,
       .gas = 2,
       .optimizer = R"({"type": "SGD", "params": {"lr": )" + std::to_string(optimizer_lr) + "}}",
       .more = R"({"scheduler": )" + scheduler + "}"});
}

// `rate_at` gives the schedule's value at an index; update n uses index n - 1, and a skipped step
// uses none.
void check(const engine::Config& config, const std::function<double(int)>& rate_at) {
  for (const int bad : {kNever, 6}) {
    std::vector<double> wanted;
    for (int step = 1, index = 0; step <= kSteps; ++step) {
      wanted.push_back(step == bad ? 0.0 : rate_at(index++));
    }
    ASSERT_NE(wanted[5] == 0.0, bad == kNever);
    for (const int resume_at : {kNever, 0, 1, 4, 6, 10, 19, 20}) {
      SCOPED_TRACE("resumed at " + std::to_string(resume_at) + ", bad step " + std::to_string(bad));
      const Applied applied = run(config, config, resume_at, bad);
      EXPECT_EQ(applied.skipped, bad == kNever ? 0 : 1);
      ASSERT_EQ(applied.rates.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_FLOAT_EQ(static_cast<float>(applied.rates[i]), static_cast<float>(wanted[i]))
            << "step " << i + 1;
        if (static_cast<int>(i) + 1 == bad) continue;
        EXPECT_DOUBLE_EQ(applied.reported[i], wanted[i]) << "step " << i + 1;
      }
    }
  }
}

double warmup(int index) {
  return 1e-3 * index / 4;
}

double cosine(int index) {
  if (index < 4) return warmup(index);
  const double progress = std::min(1.0, (index - 3) / 16.0);
  return 1e-3 * (1e-4 + (1 - 1e-4) * (1 + std::cos(std::numbers::pi * progress)) / 2);
}

const std::string kCosine =
    R"({"type": "WarmupCosineLR",
        "params": {"total_num_steps": 20, "warmup_num_steps": 4, "warmup_type": "linear"}})";

TEST(LrResume, WarmupThenCosineIsOneListHoweverItIsCut) {
  check(config_with(1e-3, kCosine), cosine);
}

// The optimizer's own rate is never used, not in the first step either.
TEST(LrResume, WarmupThenDecayIsOneListHoweverItIsCut) {
  check(config_with(5e-3, R"({"type": "WarmupDecayLR",
                              "params": {"total_num_steps": 20, "warmup_max_lr": 1e-3,
                                         "warmup_num_steps": 4, "warmup_type": "linear"}})"),
        [](int index) {
          return index < 4 ? warmup(index) : 1e-3 * std::max(0.0, (20 - index) / 16.0);
        });
}

// docs/config.md: a checkpoint holds the index only; the values are those of the resuming run.
TEST(LrResume, AChangedConfigurationHoldsFromTheFirstUpdateOn) {
  const Applied applied = run(config_with(1e-3, kCosine), config_with(5e-4, kCosine), 10, kNever);
  for (int step = 1; step <= kSteps; ++step) {
    EXPECT_FLOAT_EQ(static_cast<float>(applied.rates[static_cast<std::size_t>(step - 1)]),
                    static_cast<float>((step <= 10 ? 1.0 : 0.5) * cosine(step - 1)))
        << "step " << step;
  }
}

}  // namespace
}  // namespace penstock::testing
