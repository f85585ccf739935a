#include "model/data/prefetch_source.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/data/indexed_source.h"
#include "model/data/repeating_source.h"
#include "tensor/context.h"
#include "tensor/error.h"
#include "tests/support/errors.h"

namespace penstock::model {
namespace {

using tensor::Tensor;
using testing::message;

// What happened in a Watched source, whichever thread it was on.
struct Log {
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, std::thread::id>> fetched;  // first sample, thread
  std::atomic<int> count = 0;

  std::thread::id thread_of(std::int64_t sample) {
    const std::lock_guard lock(mutex);
    for (const auto& [first, thread] : fetched) {
      if (first == sample) return thread;
    }
    return {};
  }
};

// Sample i is the number i; those in `bad` cannot be fetched.
class Watched final : public IndexedSource {
 public:
  Watched(std::int64_t samples, std::shared_ptr<Log> log = std::make_shared<Log>(),
          std::vector<std::int64_t> bad = {}, std::optional<std::uint64_t> seed = std::nullopt)
      : IndexedSource(samples, seed), log_(std::move(log)), bad_(std::move(bad)) {}

 private:
  MicroBatch fetch(std::span<const std::int64_t> samples) override {
    {
      const std::lock_guard lock(log_->mutex);
      log_->fetched.emplace_back(samples[0], std::this_thread::get_id());
    }
    ++log_->count;
    for (const std::int64_t sample : samples) {
      if (std::ranges::find(bad_, sample) == bad_.end()) continue;
      throw tensor::InvalidArgument("sample " + std::to_string(sample) + " is bad");
    }
    const Tensor values = Tensor::empty(memory(), {std::ssize(samples)}, tensor::DType::kI64);
    std::ranges::copy(samples, values.data<std::int64_t>());
    return {{values}, {}, {}};
  }

  std::shared_ptr<Log> log_;
  std::vector<std::int64_t> bad_;
};

// All that a call shows of a source.
std::string shown(DataSource& source, const std::function<std::optional<MicroBatch>()>& call) {
  std::string text;
  try {
    const std::optional<MicroBatch> batch = call();
    if (batch) {
      for (const std::int64_t id : batch->ids) text += std::to_string(id) + ",";
      for (const std::int64_t value : batch->inputs.at(0).span<std::int64_t>()) {
        text += " " + std::to_string(value);
      }
    } else {
      text = "nothing";
    }
  } catch (const tensor::InvalidArgument& error) {
    text = error.what();
  }
  const auto left = source.remaining();
  return text + "; at " + std::to_string(source.position()) + ", left " +
         (left ? std::to_string(*left) : "no end");
}

// Random calls, as a grid's loader makes them and as nobody would, on a source and on another that
// reads ahead.
void compare(const std::function<std::unique_ptr<DataSource>()>& make, std::int64_t samples,
             bool epochs, std::uint64_t seed) {
  const auto plain = make();
  PrefetchSource ahead(make(), 1 + static_cast<int>(seed % 3));
  std::mt19937_64 draw(seed);
  const auto below = [&draw](std::int64_t n) {
    return static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(n));
  };
  std::int64_t rows = 2, gap = 0;
  for (int i = 0; i < 300; ++i) {
    std::function<std::optional<MicroBatch>(DataSource&)> call;
    const std::int64_t kind = below(20);
    if (kind == 0) rows = below(4);  // 0 is an error
    if (kind == 1) gap = below(5);
    if (kind == 2) {
      call = [to = below(samples + 4) - 2](DataSource& s) {
        s.seek(to);
        return std::nullopt;
      };
    } else if (kind == 3 && epochs) {
      call = [epoch = below(3)](DataSource& s) {
        s.begin_epoch(epoch);
        return std::nullopt;
      };
    } else if (gap > 0 && kind % 2 == 0) {
      call = [=](DataSource& s) {
        s.seek(s.position() + gap);
        return s.next(rows);
      };
    } else {
      call = [=](DataSource& s) { return s.next(rows); };
    }
    ASSERT_EQ(shown(ahead, [&] { return call(ahead); }),
              shown(*plain, [&] { return call(*plain); }))
        << "seed " << seed << ", call " << i;
  }
}

TEST(PrefetchSource, GivesWhatItsSourceGives) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    compare([] { return std::make_unique<Watched>(23); }, 23, true, seed);
    compare(
        [] {
          return std::make_unique<Watched>(40, std::make_shared<Log>(),
                                           std::vector<std::int64_t>{5, 17, 18}, 9);
        },
        40, true, seed);
    compare(
        [] {
          return std::make_unique<RepeatingSource>(std::make_unique<Watched>(
              11, std::make_shared<Log>(), std::vector<std::int64_t>{}, 4));
        },
        50, false, seed);
    compare(
        [] {
          return std::make_unique<RepeatingSource>(
              std::make_unique<PrefetchSource>(std::make_unique<Watched>(11)));
        },
        50, false, seed);
  }
}

// Waits for what another thread is about to do.
void await(const std::function<bool()>& done) {
  for (int i = 0; i < 10000 && !done(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(done());
}

TEST(PrefetchSource, ReadsAheadAsFarAsItMay) {
  const auto log = std::make_shared<Log>();
  PrefetchSource source(std::make_unique<Watched>(100, log), 3);
  EXPECT_EQ(log->count, 0);  // it does not know how many rows yet
  source.next(4);
  await([&] { return log->count == 1 + 3; });
  EXPECT_EQ(source.position(), 4);
  EXPECT_EQ(source.remaining(), 96);
  source.next(4);
  await([&] { return log->count == 2 + 3; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(log->count, 2 + 3);
  EXPECT_EQ(log->thread_of(0), std::this_thread::get_id());
  for (const std::int64_t sample : {4, 8, 12, 16}) {
    EXPECT_NE(log->thread_of(sample), std::this_thread::get_id()) << sample;
  }
}

TEST(PrefetchSource, ReadsAsAReplicaReadsItsShare) {
  const auto log = std::make_shared<Log>();
  PrefetchSource source(std::make_unique<RepeatingSource>(std::make_unique<Watched>(1000, log)), 2);
  // Replica 1 of 3, micro batches of two rows.
  for (std::int64_t position = 2; position < 600; position += 6) {
    if (source.position() != position) source.seek(position);
    EXPECT_EQ(source.next(2)->ids, (std::vector<std::int64_t>{position, position + 1}));
  }
  for (std::int64_t position = 14; position < 600; position += 6) {
    EXPECT_NE(log->thread_of(position), std::this_thread::get_id()) << position;
  }
  EXPECT_LE(log->count, 100 + 2 + 2);  // the wrong guesses after the first call, and what is ahead
}

TEST(PrefetchSource, ErrorsComeOutOfTheCallThatMeetsThem) {
  const auto log = std::make_shared<Log>();
  PrefetchSource source(std::make_unique<Watched>(100, log, std::vector<std::int64_t>{5}), 4);
  source.next(2);
  await([&] { return log->count >= 3; });  // it has met the bad one
  EXPECT_EQ(source.next(2)->ids, (std::vector<std::int64_t>{2, 3}));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(message<tensor::InvalidArgument>([&] { source.next(2); }), "sample 5 is bad");
    EXPECT_EQ(source.position(), 4);
  }
  source.seek(6);
  EXPECT_EQ(source.next(2)->ids, (std::vector<std::int64_t>{6, 7}));
}

// Of this one, a seek may fail, and a position that could be reached may be no more.
class Fragile final : public DataSource {
 public:
  std::optional<MicroBatch> next(std::int64_t rows) override {
    MicroBatch batch;
    batch.inputs = {
        Tensor::zeros(tensor::Context(tensor::make_cpu_allocator()), {rows}, tensor::DType::kI64)};
    batch.ids.resize(static_cast<std::size_t>(rows));
    std::iota(batch.ids.begin(), batch.ids.end(), position_);
    position_ += rows;
    return batch;
  }
  std::int64_t position() const override { return position_; }
  void seek(std::int64_t position) override {
    if (position % 10 == 9) throw tensor::InvalidArgument("no way to " + std::to_string(position));
    position_ = position;
  }
  std::optional<std::int64_t> remaining() const override { return std::nullopt; }

 private:
  std::int64_t position_ = 0;
};

TEST(PrefetchSource, ASeekThatFailsChangesNothing) {
  PrefetchSource source(std::make_unique<Fragile>(), 3);
  source.next(1);
  source.seek(3);
  source.next(1);  // at 3; the pattern goes on to 6, then to 9
  source.seek(6);
  EXPECT_EQ(source.next(1)->ids, (std::vector<std::int64_t>{6}));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { source.seek(9); }), "no way to 9");
  EXPECT_EQ(source.position(), 7);
  EXPECT_EQ(source.next(1)->ids, (std::vector<std::int64_t>{7}));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { source.seek(19); }), "no way to 19");
  EXPECT_EQ(source.next(2)->ids, (std::vector<std::int64_t>{8, 9}));
}

// Whatever its thread is doing: before a first call, in a fetch, with all that it may hold.
TEST(PrefetchSource, EndsAtAnyTime) {
  for (int i = 0; i < 200; ++i) {
    PrefetchSource source(std::make_unique<Watched>(100), 1 + i % 3);
    for (int calls = 0; calls < i % 4; ++calls) source.next(1 + i % 2);
  }
}

TEST(PrefetchSource, NamesWhatItCannotBeMadeOf) {
  EXPECT_EQ(message<tensor::InvalidArgument>([] { PrefetchSource(nullptr, 2); }),
            "[data] expected a source to read ahead of, got none");
  EXPECT_EQ(
      message<tensor::InvalidArgument>([] { PrefetchSource(std::make_unique<Watched>(1), 0); }),
      "[data] expected to read ahead by at least one micro batch, got a depth of 0");
}

}  // namespace
}  // namespace penstock::model
