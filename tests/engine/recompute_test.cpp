// Activations that are computed again give the same training, in less memory, as planned.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/layers/linear.h"
#include "tensor/ops/activation.h"
#include "tests/engine/memory_checks.h"

namespace penstock::testing {
namespace {

std::vector<ScheduleRun> runs() {
  return {{.schedule = "1f1b", .pipe = 1, .gas = 3},
          {.schedule = "1f1b", .pipe = 3, .gas = 7},
          {.schedule = "zb_h1", .pipe = 2, .gas = 5},
          {.schedule = "interleaved_1f1b", .pipe = 2, .chunks = 2, .gas = 6},
          {.schedule = "zbv", .pipe = 2, .chunks = 2, .gas = 5, .steps = 3}};
}

TEST(Recompute, ChangesNoBitOfTheTraining) {
  for (const Subject& subject : {mlp(12, 0.25), gpt12()}) {
    for (ScheduleRun run : runs()) {
      const ScheduleOutcome kept = train(subject, run);
      for (const int interval : {1, 2, 5}) {
        SCOPED_TRACE(subject.name + ", " + run.text() + ", interval " + std::to_string(interval));
        run.recompute = interval;
        const ScheduleOutcome again = train(subject, run);
        EXPECT_EQ(again.losses, kept.losses);
        EXPECT_EQ(again.norms, kept.norms);
        EXPECT_TRUE(again.weights == kept.weights);
      }
    }
  }
}

std::int64_t tape_bytes(const MemoryComparison& rank) {
  return rank.plan.pipe_buffers[engine::Holding::kTape];
}

TEST(Recompute, IsInThePlanAndSavesMemory) {
  for (const Subject& subject : {mlp(12), gpt12()}) {
    for (ScheduleRun run : runs()) {
      SCOPED_TRACE(subject.name + ", " + run.text());
      const auto measure = [&](int interval) {
        run.recompute = interval;
        return on_ranks<MemoryComparison>(
            run.ranks(), [&](comm::World& world) { return measure_training(world, subject, run); });
      };
      const auto kept = measure(0), again = measure(2);
      for (std::size_t rank = 0; rank < kept.size(); ++rank) {
        expect_as_planned(again[rank]);
        // A split backward keeps what the weights need from I to W, which may be all there is.
        const bool split = run.schedule.starts_with("zb");
        EXPECT_LE(tape_bytes(again[rank]), tape_bytes(kept[rank]) * (split ? 1.0 : 0.7));
      }
    }
  }
}

// Counts the forwards of its uses, in the order of layers.
class Counting final : public model::Layer {
 public:
  explicit Counting(int* calls) : calls_(calls) {}
  std::vector<model::Tensor> forward(model::Context& context,
                                     std::span<const model::Tensor> inputs) override {
    ++*calls_;
    return {tensor::tanh(context, linear_.forward(context, inputs)[0])};
  }

 private:
  int* calls_;
  model::Linear& linear_ = add_child("linear", std::make_unique<model::Linear>(kWidth, kWidth));
};

TEST(Recompute, RunsEachChosenLayerOnceMore) {
  constexpr int kMicroBatches = 3;
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    SCOPED_TRACE(schedule);
    std::vector<int> calls(6, 0);
    const auto module = [&calls] {
      model::Module result = mlp8();
      result.layers.clear();
      for (int& count : calls) {
        result.layers.push_back(model::layer<Counting>("Counting", &count));
      }
      result.layers[1].recompute = model::Recompute::kNever;
      result.layers[5].recompute = model::Recompute::kAlways;
      return result;
    };
    for (const int interval : {0, 2}) {
      for (int& count : calls) count = 0;
      const ScheduleRun run{
          .schedule = schedule, .gas = kMicroBatches, .steps = 1, .recompute = interval};
      on_ranks<int>(1, [&](comm::World& world) {
        engine::Engine engine(world, module(), run.config(), mlp_samples(64));
        engine.train_batch();
        const int twice = interval > 0 ? 2 : 1;
        EXPECT_EQ(calls, (std::vector<int>{twice * kMicroBatches, kMicroBatches,
                                           twice * kMicroBatches, twice * kMicroBatches,
                                           twice * kMicroBatches, 2 * kMicroBatches}));
        // An evaluation has no backward that would run anything again.
        for (int& count : calls) count = 0;
        engine.eval_batch(*mlp_samples(64));
        EXPECT_EQ(calls, std::vector<int>(6, kMicroBatches));
        engine.close();
        return 0;
      });
    }
  }
}

}  // namespace
}  // namespace penstock::testing
