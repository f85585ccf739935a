// Memory over many steps and many engines in one process.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>

#include "tests/engine/schedule_runs.h"

namespace penstock::testing {
namespace {

// Entries of a folder of /proc/self.
std::int64_t count_entries(const char* folder) {
  const std::filesystem::directory_iterator entries(std::filesystem::path("/proc/self") / folder);
  return std::distance(begin(entries), end(entries));
}

TEST(MemoryOverSteps, StaysFlatWhileTrainingEvaluatingAndSaving) {
  constexpr int kSteps = 500;
  struct Step {
    std::int64_t pipe_buffers, peak, live;
  };
  const TemporaryFolder folder;
  const Subject subject = mlp(4);
  const ScheduleRun run{.schedule = "1f1b", .pipe = 2, .gas = 4};
  const auto by_rank = on_ranks<std::vector<Step>>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, subject.module(), run.config(), subject.data());
    const auto held_out = subject.data();
    engine.measure_memory(engine::SendTiming::kLastLegalPoint);
    std::vector<Step> steps;
    for (int step = 0; step < kSteps; ++step) {
      if (step % 5 == 4) {
        held_out->seek(0);
        engine.eval_batch(*held_out, {.micro_batches = 1 + step % 7});
        continue;
      }
      engine.train_batch();
      if (step % 100 == 0) engine.save_checkpoint(folder.path());
      world.all().barrier().wait();  // what was handed over may be freed on another rank's thread
      steps.push_back({engine.measured_memory().last.total(), engine.memory().peak_bytes(),
                       engine.memory().live_bytes()});
    }
    engine.close();
    return steps;
  });
  constexpr std::size_t kWarmUp = 20;
  for (const std::vector<Step>& steps : by_rank) {
    ASSERT_EQ(steps.size(), static_cast<std::size_t>(kSteps) * 4 / 5);
    for (const Step& step : steps) {
      EXPECT_EQ(step.pipe_buffers, steps.front().pipe_buffers);
      EXPECT_EQ(step.live, steps.front().live);
    }
    // How far ranks run ahead of each other differs, but nothing adds up.
    EXPECT_LE(steps.back().peak, steps[kWarmUp].peak + 4 * kWidth * 4);
  }
}

// Samples of [length, 16] whose length is a function of their place, 3 to 15.
class Varying final : public model::DataSource {
 public:
  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    const std::int64_t length = 3 + position_ / 4 * 7 % 13;
    model::MicroBatch batch;
    for (std::vector<tensor::Tensor>* list : {&batch.inputs, &batch.labels}) {
      list->push_back(tensor::Tensor::empty(memory_, {rows, length, kWidth}, tensor::DType::kF32));
      std::ranges::fill(list->back().span<float>(), 0.01f * static_cast<float>(position_ % 50));
    }
    for (std::int64_t row = 0; row < rows; ++row) batch.ids.push_back(position_++);
    return batch;
  }
  std::int64_t position() const override { return position_; }
  void seek(std::int64_t position) override { position_ = position; }
  std::optional<std::int64_t> remaining() const override { return std::nullopt; }

 private:
  std::shared_ptr<tensor::Allocator> memory_ = tensor::make_cpu_allocator();
  std::int64_t position_ = 0;
};

// A gradient that is not finite now and then, so that a step is skipped.
model::MicroBatch overflowing(model::MicroBatch data, const engine::MicroBatchPlace& place) {
  if (place.training && place.step % 40 == 0 && place.index == 1) {
    data.inputs[0].span<float>()[0] = std::numeric_limits<float>::infinity();
  }
  return data;
}

TEST(MemoryOverSteps, StaysFlatWhileShapesChangeAndStepsAreSkipped) {
  constexpr int kSteps = 500;
  constexpr int kWarmUp = 70;  // all lengths have come by then, in training and evaluation
  struct Peaks {
    std::int64_t buffers, all, live;
  };
  const TemporaryFolder folder;
  const ScheduleRun run{.schedule = "1f1b", .pipe = 2, .gas = 4};
  on_ranks<int>(run.ranks(), [&](comm::World& world) {
    engine::Config config = run.config();
    config.checkpoint.keep_last = 1;
    engine::Engine engine(world, mlp(4).module(), config, std::make_unique<Varying>());
    engine.set_batch_fn(overflowing);
    engine.measure_memory(engine::SendTiming::kLastLegalPoint);
    Varying held_out;
    std::vector<Peaks> peaks;
    for (int step = 0; step < kSteps; ++step) {
      if (step % 5 == 4) {
        engine.eval_batch(held_out, {.micro_batches = 4 * (1 + step % 2)});
      } else {
        engine.train_batch();
      }
      if (step % 100 == 50) engine.save_checkpoint(folder.path());
      world.all().barrier().wait();  // what was handed over may be freed on another rank's thread
      peaks.push_back({engine.measured_memory().peak.total(), engine.memory().peak_bytes(),
                       engine.memory().live_bytes()});
    }
    EXPECT_EQ(engine.skipped_steps(), 10);
    const Peaks& warm = peaks[kWarmUp];
    EXPECT_GT(warm.buffers, peaks.front().buffers) << "shapes do not change";
    EXPECT_EQ(peaks.back().buffers, warm.buffers);
    EXPECT_EQ(peaks.back().live, peaks.front().live);
    // How far ranks run ahead of each other differs: an activation of each micro batch at most.
    EXPECT_LE(peaks.back().all, warm.all * 101 / 100 + 4 * 15 * kWidth * 4);
    engine.close();
    return 0;
  });
}

// Of this process.
struct Counts {
  std::int64_t threads, files;
  bool operator==(const Counts&) const = default;
};

Counts counts() {
  return {count_entries("task"), count_entries("fd")};
}

// Bytes on the heap. Sanitizers bring a heap of their own, which finds leaks by itself.
std::int64_t allocated() {
  return static_cast<std::int64_t>(mallinfo2().uordblks);
}
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHeapIsCounted = false;
#else
constexpr bool kHeapIsCounted = true;
#endif

TEST(MemoryOverEngines, ReturnsToTheBase) {
  const Subject subject = mlp(8);
  const ScheduleRun run{.schedule = "1f1b", .pipe = 2, .gas = 2};
  const Counts before = counts();
  comm::run_local(run.ranks(), {.timeout_seconds = kTimeoutSeconds}, [&](comm::World& world) {
    const auto settle = [&world] { world.all().barrier().wait(); };
    // What all ranks' engines have allocated, while they are there.
    const auto make_and_train = [&] {
      engine::Engine engine(world, subject.module(), run.config(), subject.data());
      engine.train_batch();
      settle();
      const std::int64_t bytes = allocated();
      settle();
      engine.close();
      return bytes;
    };
    make_and_train();
    settle();
    // One rank counts, since looking into a folder opens a file.
    const bool counting = world.rank() == 0;
    const Counts base = counting ? counts() : Counts{};
    const std::int64_t base_bytes = allocated();
    settle();
    const std::int64_t engine_bytes = make_and_train() - base_bytes;
    for (int i = 0; i < 9; ++i) make_and_train();
    settle();
    if (counting) {
      EXPECT_GT(base.threads, before.threads);  // the ranks'
      EXPECT_EQ(counts(), base);
    }
    if (counting && kHeapIsCounted) {
      EXPECT_GT(engine_bytes, 8 * 4 * kWidth * kWidth * 4);  // weights, gradients, two moments
      // Ten of them leave less than one needs: the C library's own caches.
      EXPECT_LT(allocated(), base_bytes + engine_bytes);
    }
    settle();
  });
  EXPECT_EQ(counts(), before);
}

}  // namespace
}  // namespace penstock::testing
