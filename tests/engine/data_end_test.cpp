// Data that ends in the middle of a step, or of a micro batch: every rank learns it before anything
// changed, and the engine goes on with a new source.
#include <gtest/gtest.h>

#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

constexpr double kDropout = 0.1;
const std::string kAdam = R"({"type": "AdamW", "params": {"lr": 0.01}})";

struct Snapshot {
  Weights weights;
  std::vector<double> lr;
  std::int64_t steps, samples, position, skipped;
  bool operator==(const Snapshot&) const = default;
};

Snapshot snapshot_of(engine::Engine& engine) {
  return {weights_of(engine),     engine.lr(),
          engine.global_steps(),  engine.global_samples(),
          engine.data_position(), engine.skipped_steps()};
}

struct Outcome {
  std::string error;
  bool unchanged = false;
  double eval_loss = 0.0, wanted_eval_loss = 0.0;
  Weights weights;  // after one more step from a new source
};

// `first` full steps from a source of `samples`, then one that it has too few samples for, then one
// from a longer source.
Outcome run_into_the_end(comm::World& world, const RunSpec& run, std::int64_t samples, int first,
                         const std::filesystem::path& folder) {
  engine::Engine engine(world, mlp8(kDropout), config_of(run), mlp_samples(samples));
  for (int step = 0; step < first; ++step) engine.train_batch();
  const Snapshot before = snapshot_of(engine);
  const auto evaluate = [&] { return engine.eval_batch(*mlp_samples(64), {.micro_batches = 2}); };

  Outcome outcome;
  outcome.wanted_eval_loss = evaluate().loss.value();
  outcome.error = thrown_by([&] { engine.train_batch(); });
  outcome.unchanged = snapshot_of(engine) == before;
  outcome.eval_loss = evaluate().loss.value();
  engine.save_checkpoint(folder);

  // The order goes on where the run is.
  std::unique_ptr<model::DataSource> longer = mlp_samples(samples + 64);
  longer->seek(engine.data_position());
  engine.set_data(std::move(longer));
  engine.train_batch();
  outcome.weights = weights_of(engine);
  engine.close();
  return outcome;
}

// As many steps from a source that is long enough.
Weights run_without_end(comm::World& world, const RunSpec& run, int steps) {
  engine::Engine engine(world, mlp8(kDropout), config_of(run), mlp_samples(1024));
  for (int step = 0; step < steps; ++step) engine.train_batch();
  Weights weights = weights_of(engine);
  engine.close();
  return weights;
}

void check_end(const RunSpec& run, std::int64_t samples, int first, const std::string& message) {
  SCOPED_TRACE(std::to_string(samples) + " samples");
  const TemporaryFolder folder;
  const auto outcomes = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    return run_into_the_end(world, run, samples, first, folder.path());
  });
  const auto wanted = on_ranks<Weights>(
      run.ranks(), [&](comm::World& world) { return run_without_end(world, run, first + 1); });
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const Outcome& outcome = outcomes[rank];
    EXPECT_TRUE(outcome.error.starts_with("EndOfData: ")) << outcome.error;
    EXPECT_NE(outcome.error.find(message), std::string::npos) << outcome.error;
    EXPECT_EQ(outcome.error, outcomes[0].error);
    EXPECT_TRUE(outcome.unchanged);
    EXPECT_EQ(outcome.eval_loss, outcome.wanted_eval_loss);
    // Optimizer moments and random numbers enter this step, so they had not changed either.
    EXPECT_EQ(outcome.weights, wanted[rank]);
  }
}

TEST(DataOrder, EverySampleIsServedOnceToTheStagesThatLoad) {
  constexpr int kSteps = 3;
  const RunSpec run{
      .pipe = 3, .data = 2, .micro = 2, .gas = 2, .more = R"({"dataloader_prefetch": false})"};
  const auto by_rank = on_ranks<Served>(run.ranks(), [&](comm::World& world) {
    Served served;
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64, &served));
    for (int step = 0; step < kSteps; ++step) engine.train_batch();
    engine.close();
    return served;
  });
  // Micro batch m of replica r is the (2m + r)-th of its step, of 2 rows each.
  for (int rank = 0; rank < run.ranks(); ++rank) {
    const int stage = rank / run.data, replica = rank % run.data;
    Served wanted;
    for (int micro_batch = 0; stage != 1 && micro_batch < kSteps * run.gas; ++micro_batch) {
      for (int row = 0; row < 2; ++row) wanted.push_back(2 * (2 * micro_batch + replica) + row);
    }
    EXPECT_EQ(by_rank[static_cast<std::size_t>(rank)], wanted) << "rank " << rank;
  }
}

TEST(DataEnd, InTheMiddleOfAStep) {
  const RunSpec run{.pipe = 3, .gas = 8, .optimizer = kAdam};
  check_end(run, 15, 1, "7 micro batches available, 8 needed");
  check_end(run, 8, 1, "0 micro batches available, 8 needed");
  check_end(run, 7, 0, "7 micro batches available, 8 needed");
}

TEST(DataEnd, OnOneReplicaOnly) {
  const RunSpec run{.pipe = 2, .data = 2, .gas = 4, .optimizer = kAdam};
  // Of the second step only the last micro batch of replica 1 is missing.
  check_end(run, 15, 1, "3 micro batches available, 4 needed");
  // Replica 1 would begin its third micro batch beyond the end.
  check_end(run, 12, 1, "2 micro batches available, 4 needed");
  check_end(run, 9, 1, "0 micro batches available, 4 needed");
}

TEST(DataEnd, InTheMiddleOfAMicroBatch) {
  check_end({.pipe = 2, .micro = 3, .gas = 3, .optimizer = kAdam}, 8, 0,
            "micro batch 2 wanted 3 rows, found 2");
  check_end({.pipe = 2, .micro = 4, .gas = 3, .optimizer = kAdam}, 10, 0,
            "micro batch 2 wanted 4 rows, found 2");
  // The fourth micro batch would be empty; the third one already ends it.
  check_end({.pipe = 2, .micro = 4, .gas = 4, .optimizer = kAdam}, 10, 0,
            "2 micro batches available, 4 needed");
  check_end({.pipe = 2, .data = 2, .micro = 3, .gas = 2, .optimizer = kAdam}, 7, 0,
            "1 micro batches available, 2 needed");
}

// A call that fails leaves the source of an evaluation where it was.
TEST(DataEnd, OfAnEvaluationLeavesItsSource) {
  const RunSpec run{.pipe = 2, .data = 2, .micro = 2, .gas = 1};
  const auto losses = on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run));
    std::unique_ptr<model::DataSource> source = mlp_samples(11);
    std::unique_ptr<model::DataSource> other = mlp_samples(11);
    EXPECT_TRUE(thrown_by([&] {
                  engine.eval_batch(*source, {.micro_batches = 3});
                }).starts_with("EndOfData: "));
    std::vector<double> result;
    for (model::DataSource* each : {source.get(), other.get()}) {
      result.push_back(engine.eval_batch(*each, {.micro_batches = 2}).loss.value());
      EXPECT_EQ(each->position(), engine.loads_data() ? 8 : 0);
    }
    engine.close();
    return result;
  });
  for (const auto& both : losses) EXPECT_EQ(both[0], both[1]);
}

// A source that gives tensors of other rows than it was asked for, in micro batch 1.
class WrongRows final : public model::DataSource {
 public:
  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    auto batch = source_->next(rows);
    if (++calls_ == 2) batch->labels[0] = batch->labels[0].rows(0, rows - 1);
    return batch;
  }
  std::int64_t position() const override { return source_->position(); }
  void seek(std::int64_t position) override { source_->seek(position); }
  std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

 private:
  std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
  int calls_ = 0;
};

TEST(DataEnd, TensorsOfOtherRowsAreRefusedByName) {
  const RunSpec run{.pipe = 2, .micro = 3, .gas = 2};
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), std::make_unique<WrongRows>());
    const std::string error = thrown_by([&] { engine.train_batch(); });
    EXPECT_EQ(engine.global_steps(), 0);
    engine.train_batch();  // the second try gets whole ones
    EXPECT_EQ(engine.global_steps(), 1);
    engine.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(error.starts_with("CallRefused: ")) << error;
    EXPECT_NE(error.find("label 0 of micro batch 1 to have 3 rows, got f32 [2, 16]"),
              std::string::npos)
        << error;
  }
}

TEST(DataEnd, NoSourceOnOneLoadingRank) {
  const RunSpec run{.pipe = 3, .gas = 2};
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run),
                          world.rank() == 2 ? nullptr : mlp_samples(16));
    const std::string error = thrown_by([&] { engine.train_batch(); });
    engine.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("rank 2: there is no data source on this rank"), std::string::npos)
        << error;
  }
}

// The labels' source is one sample ahead of the inputs'.
TEST(DataEnd, SourcesThatDisagreeAreFound) {
  class Shifted final : public model::DataSource {
   public:
    std::optional<model::MicroBatch> next(std::int64_t rows) override {
      source_->seek(source_->position() + 1);
      auto batch = source_->next(rows);
      source_->seek(source_->position() - 1);
      return batch;
    }
    std::int64_t position() const override { return source_->position(); }
    void seek(std::int64_t position) override { source_->seek(position); }
    std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

   private:
    std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
  };
  for (const std::string pipeline :
       {R"({"schedule": "1f1b"})", R"({"schedule": "zb1p", "chunks": 2})"}) {
    SCOPED_TRACE(pipeline);
    const RunSpec run{.pipe = 3, .gas = 2, .more = R"({"pipeline": )" + pipeline + "}"};
    const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
      std::unique_ptr<model::DataSource> source = std::make_unique<Shifted>();
      if (world.rank() != 2) source = mlp_samples(64);
      engine::Engine engine(world, mlp8(), config_of(run), std::move(source));
      return thrown_by([&] { engine.train_batch(); });
    });
    EXPECT_TRUE(errors[2].starts_with("ExecutionError: ")) << errors[2];
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("the labels of micro batch 0 belong to other samples"),
                std::string::npos)
          << error;
    }
  }
}

}  // namespace
}  // namespace penstock::testing
