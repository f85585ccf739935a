// set_train_batch_size, and sequences whose length changes from step to step.
#include <fstream>

#include <gtest/gtest.h>

#include "schedule/csv.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using tensor::Tensor;

struct Outcome {
  std::vector<double> losses;
  std::vector<std::size_t> micro_batches;  // of each step, in this replica
  Weights weights;
  std::int64_t samples = 0, position = 0;
};

Outcome outcome_of(engine::Engine& engine, Outcome outcome) {
  outcome.weights = weights_of(engine);
  outcome.samples = engine.global_samples();
  outcome.position = engine.data_position();
  engine.close();
  return outcome;
}

// One step of each size.
std::vector<Outcome> train_sizes(const RunSpec& run, const std::vector<std::int64_t>& sizes,
                                 bool set) {
  return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    const model::Module module = tie6();
    engine::Engine engine(world, module, config_of(run), token_samples(512));
    set_weights(engine, start_weights(module));
    Outcome outcome;
    for (const std::int64_t size : sizes) {
      if (set) engine.set_train_batch_size(size);
      EXPECT_EQ(engine.batch().train_batch_size, size);
      const engine::TrainResult result = engine.train_batch();
      outcome.losses.push_back(result.loss);
      outcome.micro_batches.push_back(result.micro_losses.size());
      const engine::EvalResult eval = engine.eval_batch(*token_samples(64));
      EXPECT_EQ(eval.micro_losses.size(), result.micro_losses.size());
    }
    return outcome_of(engine, std::move(outcome));
  });
}

void expect_equal(const std::vector<Outcome>& got, const std::vector<Outcome>& wanted) {
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    EXPECT_EQ(got[rank].losses, wanted[0].losses);
    EXPECT_EQ(got[rank].samples, wanted[0].samples);
    EXPECT_EQ(got[rank].position, wanted[0].position);
  }
}

const std::vector<std::string> kPipelines = {
    R"({"schedule": "1f1b"})", R"({"schedule": "gpipe"})", R"({"schedule": "zb_h1"})",
    R"({"schedule": "interleaved_1f1b", "chunks": 2})", R"({"schedule": "zbv", "chunks": 2})"};

RunSpec with_pipeline(RunSpec run, const std::string& pipeline) {
  run.more = R"({"pipeline": )" + pipeline + "}";
  return run;
}

TEST(TrainBatchSize, IsThatOfARunThatHasItFromTheStart) {
  for (const std::string& pipeline : kPipelines) {
    SCOPED_TRACE(pipeline);
    const RunSpec small = with_pipeline({.pipe = 2, .data = 2, .micro = 2, .gas = 2}, pipeline);
    RunSpec large = small;
    large.gas = 6;
    const auto wanted = train_sizes(large, {24, 24}, false);
    const auto got = train_sizes(small, {24, 24}, true);
    ASSERT_EQ(got[0].micro_batches, (std::vector<std::size_t>{6, 6}));
    expect_equal(got, wanted);
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      EXPECT_EQ(got[rank].weights, wanted[rank].weights);
    }
  }
}

TEST(TrainBatchSize, MayChangeFromStepToStepOnAnyPipe) {
  const std::vector<std::int64_t> sizes{8, 24, 24, 4, 8, 40};
  const std::vector<std::size_t> micro_batches{2, 6, 6, 1, 2, 10};
  const RunSpec one{.pipe = 1, .data = 2, .micro = 2, .gas = 2};
  const auto wanted = train_sizes(one, sizes, true);
  EXPECT_EQ(wanted[0].micro_batches, micro_batches);
  EXPECT_EQ(wanted[0].samples, 108);
  for (const std::string& pipeline : kPipelines) {
    SCOPED_TRACE(pipeline);
    RunSpec run = with_pipeline(one, pipeline);
    run.pipe = 2;
    const auto got = train_sizes(run, sizes, true);
    expect_equal(got, wanted);
    Weights all;
    for (const Outcome& outcome : got) all.merge(Weights(outcome.weights));
    EXPECT_EQ(all, wanted[0].weights);
  }
}

// Calls that are refused; then a step, as if they had not been.
TEST(TrainBatchSize, ABadOneChangesNothing) {
  const RunSpec run{.pipe = 2, .data = 2, .micro = 2, .gas = 2};
  const auto wanted = train_sizes(run, {8}, false);
  const auto errors = on_ranks<std::vector<std::string>>(run.ranks(), [&](comm::World& world) {
    const model::Module module = tie6();
    engine::Engine engine(world, module, config_of(run), token_samples(512));
    set_weights(engine, start_weights(module));
    std::vector<std::string> texts;
    const engine::BatchTriple before = engine.batch();
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-8}, std::int64_t{10},
                                    std::int64_t{1} << 62, std::int64_t{8 + 4 * world.rank()}}) {
      texts.push_back(thrown_by([&] { engine.set_train_batch_size(size); }));
      EXPECT_EQ(engine.batch(), before);
    }
    const double loss = engine.train_batch().loss;
    EXPECT_EQ(loss, wanted[0].losses[0]);
    EXPECT_EQ(weights_of(engine), wanted[static_cast<std::size_t>(world.rank())].weights);
    engine.close();
    return texts;
  });
  const std::string where = "CallRefused: [set_train_batch_size] ";
  for (const std::vector<std::string>& texts : errors) {
    for (const std::string& text : texts) EXPECT_TRUE(text.starts_with(where)) << text;
    EXPECT_NE(texts[0].find("each must be at least 1"), std::string::npos) << texts[0];
    EXPECT_NE(texts[2].find("10 is not a multiple of 2×2 = 4"), std::string::npos) << texts[2];
    EXPECT_NE(texts[3].find("accumulation steps, expected at most"), std::string::npos) << texts[3];
    EXPECT_EQ(texts[4], where +
                            "the ranks do not agree on the options of the call; expected all to "
                            "make the same calls with the same configuration");
  }
}

TEST(TrainBatchSize, IsKeptInACheckpoint) {
  const TemporaryFolder folder;
  const auto train = [&](const RunSpec& run, const std::function<void(engine::Engine&)>& begin) {
    return on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, tie6(), config_of(run), token_samples(512));
      Outcome outcome;
      begin(engine);
      outcome.losses.push_back(engine.train_batch().loss);
      outcome.micro_batches.push_back(static_cast<std::size_t>(engine.batch().train_batch_size));
      return outcome_of(engine, std::move(outcome));
    });
  };
  const RunSpec run{.pipe = 2, .data = 2, .micro = 2, .gas = 2};
  const auto wanted = train(run, [&](engine::Engine& engine) {
    engine.train_batch();
    engine.set_train_batch_size(24);
    engine.train_batch();
    engine.save_checkpoint(folder.path());
  });
  EXPECT_EQ(wanted[0].micro_batches[0], 24u);
  const auto load = [&](engine::Engine& engine) { engine.load_checkpoint(folder.path()); };
  const auto resumed = train(run, load);
  expect_equal(resumed, wanted);
  for (std::size_t rank = 0; rank < resumed.size(); ++rank) {
    EXPECT_EQ(resumed[rank].micro_batches, wanted[0].micro_batches);
    EXPECT_EQ(resumed[rank].weights, wanted[rank].weights);
  }
  // A size that was changed before the checkpoint is loaded gives way; that of a run which is
  // configured otherwise does not.
  const auto changed = train(run, [&](engine::Engine& engine) {
    engine.set_train_batch_size(40);
    engine.load_checkpoint(folder.path());
  });
  EXPECT_EQ(changed[0].losses, wanted[0].losses);
  RunSpec other = run;
  other.gas = 4;
  EXPECT_EQ(train(other, load)[0].micro_batches[0], 16u);
  // On another grid too.
  EXPECT_EQ(train({.pipe = 2, .data = 1, .micro = 2, .gas = 4}, load)[0].micro_batches[0], 24u);
}

TEST(TrainBatchSize, AScheduleFromAFileServesNoOther) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "two.csv").string();
  std::ofstream(path) << "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  const RunSpec run = with_pipeline({.pipe = 2, .gas = 2}, R"({"schedule": "file:)" + path + "\"}");
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    const std::string error = thrown_by([&] { engine.set_train_batch_size(3); });
    EXPECT_EQ(engine.batch().gradient_accumulation_steps, 2);
    EXPECT_EQ(engine.train_batch().micro_losses.size(), 2u);
    engine.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("gradient_accumulation_steps is 3, but the table " + path +
                         " has 2 micro batches"),
              std::string::npos)
        << error;
  }
}

// "auto" looks again, with the costs that it has.
TEST(TrainBatchSize, AutoSearchesForIt) {
  const RunSpec run = with_pipeline({.pipe = 2, .gas = 4}, R"({"schedule": "auto", "chunks": 2})");
  const RunSpec plain{.pipe = 2, .gas = 4};
  const std::vector<std::int64_t> sizes{4, 6, 6, 6, 8, 3};
  const auto wanted = on_ranks<std::vector<double>>(plain.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(plain), mlp_samples(64));
    std::vector<double> losses;
    for (const std::int64_t size : sizes) {
      engine.set_train_batch_size(size);
      losses.push_back(engine.train_batch().loss);
    }
    engine.close();
    return losses;
  });
  on_ranks<int>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    std::string costs;
    for (std::size_t step = 0; step < sizes.size(); ++step) {
      engine.set_train_batch_size(sizes[step]);
      EXPECT_NEAR(engine.train_batch().loss, wanted[0][step], 1e-5) << step;
      const engine::FoundSchedule* found = engine.found_schedule();
      if (found == nullptr) {
        EXPECT_LT(step, 3u) << "the change of size lost the measurements";
        continue;
      }
      if (costs.empty()) costs = found->costs;
      EXPECT_EQ(found->costs, costs);
      EXPECT_EQ(schedule::parse_csv(found->table, {}).micro_batches, sizes[step]);
    }
    EXPECT_NE(costs, "");
    engine.close();
    return 0;
  });
}

// --- sequence lengths

// Tokens and next tokens; those of samples 8s … 8s + 7 are in rows of 3 + 2s.
class Growing final : public model::DataSource {
 public:
  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    const std::int64_t length = 3 + 2 * (position_ / 8);
    model::MicroBatch batch;
    batch.inputs = {Tensor::empty(memory_, {rows, length}, tensor::DType::kI64)};
    batch.labels = {Tensor::empty(memory_, {rows, length}, tensor::DType::kI64)};
    for (std::int64_t row = 0; row < rows; ++row, ++position_) {
      batch.ids.push_back(position_);
      for (std::int64_t k = 0; k < length; ++k) {
        const auto at = static_cast<std::size_t>(row * length + k);
        batch.inputs[0].span<std::int64_t>()[at] = (5 * position_ + 3 * k) % 32;
        batch.labels[0].span<std::int64_t>()[at] = (5 * position_ + 3 * k + 3) % 32;
      }
    }
    return batch;
  }
  std::int64_t position() const override { return position_; }
  void seek(std::int64_t position) override { position_ = position; }
  std::optional<std::int64_t> remaining() const override { return std::nullopt; }

 private:
  std::shared_ptr<tensor::Allocator> memory_ = tensor::make_cpu_allocator();
  std::int64_t position_ = 0;
};

TEST(SequenceLength, GrowsOverStepsOfTrainingAndEvaluation) {
  const auto losses = [](const RunSpec& run) {
    return on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, tie6(), config_of(run), std::make_unique<Growing>());
      set_weights(engine, start_weights(tie6()));
      Growing held_out;
      std::vector<double> result;
      for (int step = 0; step < 6; ++step) {
        result.push_back(engine.train_batch().loss);
        // An evaluation is at other lengths: it takes half as many samples.
        result.push_back(engine.eval_batch(held_out, {.micro_batches = run.gas / 2}).loss.value());
      }
      engine.close();
      return result;
    })[0];
  };
  const std::vector<double> wanted = losses({.pipe = 1, .micro = 2, .gas = 4});
  for (const std::string& pipeline : kPipelines) {
    SCOPED_TRACE(pipeline);
    EXPECT_EQ(losses(with_pipeline({.pipe = 2, .micro = 2, .gas = 4}, pipeline)), wanted);
  }
  // The same step by itself: the length of an earlier one leaves nothing behind.
  const auto alone = on_ranks<double>(2, [](comm::World& world) {
    engine::Engine engine(world, tie6(), config_of({.pipe = 2, .micro = 2, .gas = 4}));
    set_weights(engine, start_weights(tie6()));
    Growing data;
    data.seek(40);
    const double fresh = engine.eval_batch(data).loss.value();
    data.seek(0);
    for (int step = 0; step < 5; ++step) engine.eval_batch(data);
    EXPECT_EQ(data.position(), 40);
    EXPECT_EQ(engine.eval_batch(data).loss, fresh);
    engine.close();
    return fresh;
  });
  EXPECT_EQ(alone[0], alone[1]);
}

}  // namespace
}  // namespace penstock::testing
