// The engine reads its own source ahead: while a step runs, the micro batches of the next one.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "model/data/repeating_source.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using schedule::Opcode;

const std::string kNotAhead = R"({"dataloader_prefetch": false})";

// mlp_samples() that count how many micro batches were read, and throw for samples from `bad` on.
class Counted final : public model::DataSource {
 public:
  Counted(std::atomic<int>& reads, std::int64_t bad) : reads_(reads), bad_(bad) {}

  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    ++reads_;
    if (position() + rows > bad_) {
      throw std::runtime_error("no disk under sample " + std::to_string(position()));
    }
    return source_->next(rows);
  }
  std::int64_t position() const override { return source_->position(); }
  void seek(std::int64_t position) override { source_->seek(position); }
  std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

 private:
  std::atomic<int>& reads_;
  std::int64_t bad_;
  std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
};

// Waits a while for so many reads.
bool reaches(const std::atomic<int>& reads, int count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (reads < count && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return reads >= count;
}

TEST(ReadAhead, TakesTheNextStepWhileAStepRuns) {
  on_ranks<int>(1, [](comm::World& world) {
    std::atomic<int> reads = 0;
    engine::Engine engine(world, mlp8(), config_of({.gas = 3}),
                          std::make_unique<Counted>(reads, 1000));
    int wanted = 6;
    engine.replace_handler(Opcode::kOptimizerStep, [&](const auto&, const auto& built_in) {
      EXPECT_TRUE(reaches(reads, wanted));  // the step itself took half of them
      built_in();
    });
    engine.train_batch();
    EXPECT_EQ(reads, 6) << "more than the next step needs";
    EXPECT_EQ(engine.data_position(), 3);
    // As far as the coming steps need.
    engine.set_train_batch_size(5);
    wanted = 3 + 5 + 5;
    engine.train_batch();
    EXPECT_EQ(reads, 13);
    EXPECT_EQ(engine.data_position(), 8);
    engine.close();
    return 0;
  });
}

TEST(ReadAhead, IsOffWhereTheConfigurationSaysSo) {
  on_ranks<int>(1, [](comm::World& world) {
    std::atomic<int> reads = 0;
    engine::Engine engine(world, mlp8(), config_of({.gas = 3, .more = kNotAhead}),
                          std::make_unique<Counted>(reads, 1000));
    engine.train_batch();
    EXPECT_EQ(reads, 3);
    // Nor is a source that is lent for a call.
    std::atomic<int> lent_reads = 0;
    Counted lent(lent_reads, 1000);
    engine.eval_batch(lent);
    engine.train_batch(lent);
    EXPECT_EQ(lent_reads, 6);
    engine.close();
    return 0;
  });
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::int64_t> positions;
  Weights weights;
};

// Steps, evaluations, another source, sizes that change, and a resume, over passes of 30 samples.
std::vector<Outcome> run_all(const RunSpec& run) {
  const TemporaryFolder folder;
  return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    const auto passes = [] { return std::make_unique<model::RepeatingSource>(mlp_samples(30)); };
    Outcome outcome;
    const auto step = [&](engine::Engine& engine) {
      outcome.losses.push_back(engine.train_batch().loss);
      outcome.positions.push_back(engine.data_position());
    };
    engine::Engine engine(world, mlp8(), config_of(run), passes());
    for (int i = 0; i < 3; ++i) step(engine);
    outcome.losses.push_back(engine.eval_batch(*mlp_samples(64)).loss.value());
    engine.save_checkpoint(folder.path());
    step(engine);
    auto other = passes();
    other->seek(20);
    engine.set_data(std::move(other));
    step(engine);
    engine.set_train_batch_size(4 * run.data);
    step(engine);
    engine.load_checkpoint(folder.path());
    for (int i = 0; i < 3; ++i) step(engine);
    outcome.weights = weights_of(engine);
    engine.close();
    return outcome;
  });
}

TEST(ReadAhead, ChangesNothingThatIsTrained) {
  for (const int data : {1, 2}) {
    for (const char* drop : {"false", "true"}) {
      RunSpec run{.pipe = 3, .data = data, .micro = 2, .gas = 3};
      run.more = std::string(R"({"dataloader_drop_last": )") + drop + "}";
      const auto ahead = run_all(run);
      run.more.insert(1, "\"dataloader_prefetch\": false, ");
      const auto not_ahead = run_all(run);
      for (std::size_t rank = 0; rank < ahead.size(); ++rank) {
        EXPECT_EQ(ahead[rank].losses, not_ahead[rank].losses);
        EXPECT_EQ(ahead[rank].positions, not_ahead[rank].positions);
        EXPECT_EQ(ahead[rank].weights, not_ahead[rank].weights);
      }
    }
  }
}

TEST(ReadAhead, AnErrorOfTheSourceStopsTheStepThatNeedsIt) {
  const RunSpec run{.pipe = 3, .micro = 2, .gas = 2};
  std::atomic<int> reads = 0;
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    // The last stage's cannot read samples 10 and 11, of the third step.
    engine::Engine engine(world, mlp8(), config_of(run),
                          std::make_unique<Counted>(reads, world.rank() == 2 ? 10 : 1000));
    engine.train_batch();
    engine.train_batch();
    const Weights before = weights_of(engine);
    std::string error = thrown_by([&] { engine.train_batch(); });
    EXPECT_EQ(thrown_by([&] { engine.train_batch(); }), error) << "it is still so";
    EXPECT_EQ(weights_of(engine), before);
    EXPECT_EQ(engine.data_position(), 8);
    auto good = mlp_samples(64);
    good->seek(8);
    engine.set_data(std::move(good));
    EXPECT_EQ(engine.train_batch().step, 3);
    engine.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "CallRefused: [train_batch] rank 2: no disk under sample 10");
  }
}

std::int64_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(ReadAhead, ItsThreadEndsWithTheSource) {
  on_ranks<int>(1, [](comm::World& world) {
    const std::int64_t base = threads();
    {
      engine::Engine engine(world, mlp8(), config_of({}), mlp_samples(64));
      engine.train_batch();
      EXPECT_EQ(threads(), base + 1);
      engine.set_data(mlp_samples(64));
      EXPECT_EQ(threads(), base + 1);
      engine.set_data(nullptr);
      EXPECT_EQ(threads(), base);
      engine.set_data(mlp_samples(64));
    }
    EXPECT_EQ(threads(), base);
    const engine::Engine plain(world, mlp8(), config_of({.more = kNotAhead}), mlp_samples(64));
    EXPECT_EQ(threads(), base);
    return 0;
  });
}

}  // namespace
}  // namespace penstock::testing
