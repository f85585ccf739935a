// The memory of a step: it does not grow with the number of micro batches, unless all forwards come
// first, and none is left when the step is over.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/engine/schedule_runs.h"

namespace penstock::testing {
namespace {

// Bytes of one activation of mlp().
constexpr std::int64_t kActivation = kWidth * 4;

struct Memory {
  std::int64_t peak = 0;  // above what the engine held before the step
  std::int64_t held = 0;  // by pipe buffers at most, with every transfer as long as it may take
  std::int64_t left = 0;  // after a training step and an evaluation, above that after the first one
};

std::vector<Memory> memory_of(const ScheduleRun& run) {
  return on_ranks<Memory>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp(8).module(), run.config(), mlp_samples(1024));
    const std::int64_t before = engine.memory().live_bytes();
    engine.measure_memory(engine::SendTiming::kLastLegalPoint);
    engine.train_batch();
    Memory memory;
    memory.held = engine.measured_memory().last.total();
    memory.peak = engine.memory().peak_bytes() - before;
    world.all().barrier().wait();  // what was handed over may be freed on another rank's thread
    const std::int64_t after = engine.memory().live_bytes();
    const auto held_out = mlp_samples(1024);
    engine.train_batch();
    engine.eval_batch(*held_out, {.micro_batches = 2 * run.gas + 1});
    world.all().barrier().wait();
    memory.left = engine.memory().live_bytes() - after;
    EXPECT_EQ(after, before);
    engine.close();
    return memory;
  });
}

TEST(ScheduleMemory, OfAnEvaluationDoesNotGrowWithTheMicroBatches) {
  const auto peaks_on = [](const ScheduleRun& run, int micro_batches) {
    return on_ranks<std::int64_t>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, mlp(12).module(), run.config());
      const std::int64_t before = engine.memory().live_bytes();
      const auto held_out = mlp_samples(1024);
      engine.eval_batch(*held_out, {.micro_batches = micro_batches});
      const std::int64_t peak = engine.memory().peak_bytes() - before;
      engine.close();
      return peak;
    });
  };
  for (const std::string map : {"\"loop\"", "\"v\""}) {
    for (const int chunks : {1, 2, 3}) {
      const ScheduleRun run{.schedule = "gpipe", .pipe = 4, .chunks = chunks, .stage_map = map};
      SCOPED_TRACE(run.text());
      const auto few = peaks_on(run, 16);
      const auto many = peaks_on(run, 96);
      for (std::size_t rank = 0; rank < few.size(); ++rank) {
        const std::int64_t losses = (96 + 4) * 8;  // with their mean and counts
        EXPECT_LE(many[rank], std::max(few[rank] + 8 * kActivation, losses)) << "rank " << rank;
      }
    }
  }
}

bool all_forwards_first(const std::string& schedule) {
  return schedule == "gpipe" || schedule == "gpipe_reversed" || schedule == "looped_bfs";
}

TEST(ScheduleMemory, DoesNotGrowWithTheMicroBatches) {
  constexpr int kPipe = 4, kFew = 16, kMany = 64;
  int bounded = 0;
  for (ScheduleRun run : runs_of_all(kPipe, 2, kFew)) {
    SCOPED_TRACE(run.text());
    const std::vector<Memory> few = memory_of(run);
    run.gas = kMany;
    const std::vector<Memory> many = memory_of(run);
    for (std::size_t rank = 0; rank < few.size(); ++rank) {
      EXPECT_EQ(few[rank].left, 0);
      EXPECT_EQ(many[rank].left, 0);
      if (all_forwards_first(run.schedule)) {
        // At least the input of each layer, of every micro batch. The peak itself depends on when
        // ranks run: on how many messages are there beside these.
        EXPECT_GE(many[rank].held - few[rank].held, (kMany - kFew) * kActivation);
        continue;
      }
      // How far neighbours run ahead of one another depends on when they run; and the losses of
      // the micro batches are shared at the end.
      const std::int64_t losses = (kMany + 4) * 8;
      EXPECT_LE(many[rank].peak, std::max(few[rank].peak + 8 * kActivation, losses))
          << "rank " << rank;
      ++bounded;
    }
  }
  EXPECT_GE(bounded, kPipe * 10);
}

}  // namespace
}  // namespace penstock::testing
