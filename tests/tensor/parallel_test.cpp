#include "tensor/parallel.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::tensor {
namespace {

Context context_with(int threads) {
  Context context(make_cpu_allocator());
  context.threads = threads;
  return context;
}

class ParallelFor : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, testing::Values(1, 2, 3));

TEST_P(ParallelFor, CallsEveryIndexOnce) {
  const Context context = context_with(GetParam());
  for (const std::int64_t count : {0, 1, 2, 1000}) {
    std::vector<int> calls(static_cast<std::size_t>(count));
    parallel_for(context, count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(count), 1));
  }
}

TEST_P(ParallelFor, RethrowsTheExceptionOfACall) {
  const Context context = context_with(GetParam());
  const auto run = [&] {
    parallel_for(context, 100, [](std::int64_t i) {
      if (i == 37) throw std::runtime_error("thirty-seven");
    });
  };
  try {
    run();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "thirty-seven");
  }
}

struct CountingProgress final : Progress {
  std::thread::id owner = std::this_thread::get_id();
  std::atomic<int> polls{0};
  std::atomic<bool> foreign{false};
  void poll() override {
    ++polls;
    if (std::this_thread::get_id() != owner) foreign = true;
  }
};

TEST_P(ParallelFor, PollsOnTheCallersThreadAlone) {
  Context context = context_with(GetParam());
  CountingProgress progress;
  context.progress = &progress;
  const bool expect_team = GetParam() > 1 && can_use_threads();
  std::atomic<bool> foreign_call{false};
  parallel_for(context, 50, [&](std::int64_t) {
    // The premise: the caller's thread and another one both take part.
    const bool own = std::this_thread::get_id() == progress.owner;
    if (!own) foreign_call = true;
    while (expect_team && !(own ? foreign_call.load() : progress.polls > 0)) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(foreign_call, expect_team);
  EXPECT_GT(progress.polls, 0);
  EXPECT_FALSE(progress.foreign);
}

TEST_P(ParallelFor, PollsInsideOfAChunkOnTheCallersThreadAlone) {
  Context context = context_with(GetParam());
  CountingProgress progress;
  context.progress = &progress;
  std::atomic<int> own_calls{0};
  parallel_for(context, 50, [&](std::int64_t) {
    if (std::this_thread::get_id() == progress.owner) ++own_calls;
    for (int i = 0; i < 1000; ++i) poll_in_chunk(context);
  });
  EXPECT_GE(progress.polls, 1000 * own_calls);
  EXPECT_FALSE(progress.foreign);
}

struct ThrowingProgress final : Progress {
  std::thread::id owner = std::this_thread::get_id();
  std::atomic<bool> polled{false};
  void poll() override {
    polled = true;
    throw std::runtime_error("peer lost");
  }
};

TEST_P(ParallelFor, PassesOnWhatAPollThrows) {
  Context context = context_with(GetParam());
  ThrowingProgress progress;
  context.progress = &progress;
  EXPECT_THROW(parallel_for(context, 50,
                            [&](std::int64_t) {
                              // Other threads leave work to the one that polls.
                              const bool own = std::this_thread::get_id() == progress.owner;
                              while (!own && !progress.polled) std::this_thread::yield();
                            }),
               std::runtime_error);
}

TEST(ParallelChunks, CutsByTheChunkSizeAlone) {
  for (const int threads : {1, 2}) {
    const Context context = context_with(threads);
    std::vector<std::pair<std::int64_t, std::int64_t>> seen(3);
    parallel_chunks(context, 10, 4, [&](std::int64_t begin, std::int64_t end) {
      seen[static_cast<std::size_t>(begin / 4)] = {begin, end};
    });
    const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {{0, 4}, {4, 8}, {8, 10}};
    EXPECT_EQ(seen, expected);
  }
}

}  // namespace
}  // namespace penstock::tensor
