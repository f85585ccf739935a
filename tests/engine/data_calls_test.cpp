// What reaches the model from a data source: the batch function, the forms of a micro batch,
// sources that replace one another, and passes that do not fill a whole number of steps.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <gtest/gtest.h>

#include "model/data/in_memory_source.h"
#include "model/data/prefetch_source.h"
#include "model/data/repeating_source.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using tensor::Tensor;

void expect_in_all(const std::vector<std::string>& errors, const std::string& text) {
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nlacks: " << text;
  }
}

// --- the batch function

struct Call {
  bool training;
  std::int64_t step, id;
  int index, replica;
  bool operator==(const Call&) const = default;
};

TEST(BatchFunction, SeesEveryMicroBatchWhereItIsLoaded) {
  const RunSpec run{.pipe = 3, .data = 2, .gas = 2};
  const auto calls = on_ranks<std::vector<Call>>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    std::vector<Call> seen;
    engine.set_batch_fn([&](model::MicroBatch data, const engine::MicroBatchPlace& place) {
      seen.push_back({place.training, place.step, data.ids[0], place.index, place.replica});
      return data;
    });
    engine.train_batch();
    engine.eval_batch(*mlp_samples(64), {.micro_batches = 1});
    engine.train_batch();
    engine.set_batch_fn(nullptr);
    engine.train_batch();
    engine.close();
    return seen;
  });
  for (int rank = 0; rank < run.ranks(); ++rank) {
    const int stage = rank / run.data, r = rank % run.data;
    std::vector<Call> wanted;
    if (stage != 1) {
      wanted = {{true, 1, r, 0, r},
                {true, 1, 2 + r, 1, r},
                {false, 1, r, 0, r},
                {true, 2, 4 + r, 0, r},
                {true, 2, 6 + r, 1, r}};
    }
    EXPECT_EQ(calls[static_cast<std::size_t>(rank)], wanted) << "rank " << rank;
  }
}

// Gives every number of inputs and labels a factor, in place of the source.
model::MicroBatch scaled(model::MicroBatch data, float factor) {
  const auto scale = [&](std::vector<Tensor>& tensors) {
    for (Tensor& tensor : tensors) {
      for (float& value : tensor.span<float>()) value *= factor;
    }
  };
  scale(data.inputs);
  scale(data.labels);
  return data;
}

class Scaled final : public model::DataSource {
 public:
  std::optional<model::MicroBatch> next(std::int64_t rows) override {
    return scaled(*source_->next(rows), 0.5f);
  }
  std::int64_t position() const override { return source_->position(); }
  void seek(std::int64_t position) override { source_->seek(position); }
  std::optional<std::int64_t> remaining() const override { return source_->remaining(); }

 private:
  std::unique_ptr<model::DataSource> source_ = mlp_samples(64);
};

TEST(BatchFunction, ChangesWhatTheModelGets) {
  const RunSpec run{.pipe = 2, .micro = 2};
  const auto losses = [&](bool by_function, float factor) {
    return on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
      std::unique_ptr<model::DataSource> data = mlp_samples(64), held_out = mlp_samples(64);
      if (!by_function) data = std::make_unique<Scaled>(), held_out = std::make_unique<Scaled>();
      engine::Engine engine(world, mlp8(), config_of(run), std::move(data));
      if (by_function) {
        engine.set_batch_fn([&](model::MicroBatch batch, const engine::MicroBatchPlace&) {
          return scaled(std::move(batch), factor);
        });
      }
      std::vector<double> result;
      for (int step = 0; step < 2; ++step) result.push_back(engine.train_batch().loss);
      result.push_back(engine.eval_batch(*held_out).loss.value());
      engine.close();
      return result;
    });
  };
  const auto wanted = losses(false, 1.0f);
  ASSERT_NE(losses(true, 1.0f), wanted);
  EXPECT_EQ(losses(true, 0.5f), wanted);
}

// A batch function that spoils micro batch 1 on the rank of the last stage, once.
std::vector<std::string> errors_of_spoiled(
    const std::function<void(model::MicroBatch&, comm::World&)>& spoil) {
  const RunSpec run{.pipe = 3, .micro = 3, .gas = 2};
  return on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    set_weights(engine, start_weights(mlp8()));
    const Weights before = weights_of(engine);
    bool armed = world.rank() == 2;
    engine.set_batch_fn([&](model::MicroBatch data, const engine::MicroBatchPlace& place) {
      if (armed && place.index == 1) spoil(data, world);
      return data;
    });
    std::unique_ptr<model::DataSource> held_out = mlp_samples(64);
    held_out->seek(5);
    const std::string of_eval = thrown_by([&] { engine.eval_batch(*held_out); });
    EXPECT_EQ(held_out->position(), 5);
    const std::string of_step = thrown_by([&] { engine.train_batch(); });
    EXPECT_TRUE(of_eval.starts_with("CallRefused: [eval_batch] rank 2: ")) << of_eval;
    EXPECT_EQ(of_eval.substr(of_eval.find(']')), of_step.substr(of_step.find(']')));
    EXPECT_EQ(weights_of(engine), before);
    EXPECT_EQ(engine.data_position(), 0);
    armed = false;
    EXPECT_EQ(engine.train_batch().step, 1);
    engine.close();
    return of_step;
  });
}

TEST(MicroBatchForm, AnythingElseIsRefusedByPositionAndTypeOnAllRanks) {
  const auto expect = [](const std::string& text,
                         const std::function<void(model::MicroBatch&, comm::World&)>& spoil) {
    SCOPED_TRACE(text);
    expect_in_all(errors_of_spoiled(spoil), "rank 2: [data] " + text);
  };
  expect("the batch function, for micro batch 1: no such file",
         [](auto&, auto&) { throw std::runtime_error("no such file"); });
  expect(
      "the batch function, for micro batch 1, got 3 rows and returned the ids of 2; expected as "
      "many",
      [](model::MicroBatch& data, auto&) { data.ids.pop_back(); });
  expect("micro batch 1 has no inputs; expected one tensor or more",
         [](model::MicroBatch& data, auto&) { data.inputs.clear(); });
  expect("expected input 0 of micro batch 1 to have 3 rows, got an undefined tensor",
         [](model::MicroBatch& data, auto&) { data.inputs[0] = {}; });
  expect("expected input 1 of micro batch 1 to have 3 rows, got f32 [2, 16] on cpu",
         [](model::MicroBatch& data, auto&) { data.inputs.push_back(data.inputs[0].rows(0, 2)); });
  expect("expected label 0 of micro batch 1 to have 3 rows, got f32 [] on cpu",
         [](model::MicroBatch& data, auto&) {
           data.labels[0] = Tensor::empty(tensor::make_cpu_allocator(), {}, tensor::DType::kF32);
         });
  expect(
      "expected label 0 of micro batch 1 to lie in host memory, got f32 [3, 16] on meta",
      [](model::MicroBatch& data, auto&) {
        data.labels[0] = Tensor::empty(tensor::make_meta_allocator(), {3, 16}, tensor::DType::kF32);
      });
}

TEST(MicroBatchForm, WithoutLabelsWhereTheLossWantsThemIsRefused) {
  expect_in_all(errors_of_spoiled([](model::MicroBatch& data, auto&) { data.labels.clear(); }),
                "rank 2: the labels of micro batch 1: [loss] expected labels whose first axis is "
                "rows, to weigh a micro batch by, got none");
}

// --- replacing the source

TEST(TrainBatchFrom, ASourceIsWhatSetDataDoes) {
  const RunSpec run{.pipe = 2, .data = 2, .micro = 2, .gas = 2};
  const auto losses = [&](bool given) {
    return on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(8));
      std::vector<double> result{engine.train_batch().loss};
      std::unique_ptr<model::DataSource> other = mlp_samples(64);
      other->seek(20);
      if (given) {
        for (int step = 0; step < 2; ++step) {
          result.push_back(engine.train_batch(*other).loss);
          EXPECT_EQ(other->position(), 28 + 8 * step);
        }
      } else {
        engine.set_data(std::move(other));
        for (int step = 0; step < 2; ++step) result.push_back(engine.train_batch().loss);
      }
      result.push_back(engine.train_batch().loss);  // goes on with it
      EXPECT_EQ(engine.data_position(), 44);
      engine.close();
      return result;
    });
  };
  EXPECT_EQ(losses(true), losses(false));
}

TEST(TrainBatchFrom, ARefusedSourceStaysWhereItIsAndReplacesNothing) {
  const RunSpec run{.pipe = 2, .gas = 4};
  on_ranks<int>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(8));
    std::unique_ptr<model::DataSource> brief = mlp_samples(7);
    brief->seek(4);
    EXPECT_TRUE(thrown_by([&] { engine.train_batch(*brief); }).starts_with("EndOfData: "));
    EXPECT_EQ(brief->position(), 4);
    EXPECT_EQ(engine.train_batch().step, 1);  // from its own
    EXPECT_EQ(engine.data_position(), 4);
    engine.close();
    return 0;
  });
}

TEST(EmptySource, IsRefusedAtOnce) {
  const RunSpec run{.pipe = 2};
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    return thrown_by([&] {
      const engine::Engine engine(world, mlp8(), config_of(run),
                                  mlp_samples(world.rank() == 0 ? 0 : 8));
    });
  });
  expect_in_all(errors, "[data] the data source is empty; expected one with at least a sample");
  on_ranks<int>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(8));
    EXPECT_NE(thrown_by([&] { engine.set_data(mlp_samples(0)); }).find("source is empty"),
              std::string::npos);
    EXPECT_EQ(engine.train_batch().step, 1);
    engine.close();
    return 0;
  });
}

// --- passes and steps

struct Passes {
  std::vector<Served> served;           // by step
  std::vector<std::int64_t> positions;  // after each step
};

// Ten samples, two to a micro batch, three replicas: a step takes six.
std::vector<Passes> train_over_passes(bool drop_last, bool shuffled, bool ahead, int steps) {
  const RunSpec run{.pipe = 1,
                    .data = 3,
                    .micro = 2,
                    .gas = 1,
                    .more = drop_last ? R"({"dataloader_drop_last": true})" : "{}"};
  return on_ranks<Passes>(run.ranks(), [&](comm::World& world) {
    const model::MicroBatch ten = *mlp_samples(10)->next(10);
    const std::optional<std::uint64_t> seed =
        shuffled ? std::optional<std::uint64_t>(7) : std::nullopt;
    std::unique_ptr<model::DataSource> data = std::make_unique<model::RepeatingSource>(
        std::make_unique<model::InMemorySource>(ten.inputs, ten.labels, seed));
    if (ahead) data = std::make_unique<model::PrefetchSource>(std::move(data));
    engine::Engine engine(world, mlp8(), config_of(run), std::move(data));
    Passes passes;
    engine.set_batch_fn([&](model::MicroBatch batch, const engine::MicroBatchPlace&) {
      passes.served.back().insert(passes.served.back().end(), batch.ids.begin(), batch.ids.end());
      return batch;
    });
    for (int step = 0; step < steps; ++step) {
      passes.served.emplace_back();
      engine.train_batch();
      passes.positions.push_back(engine.data_position());
    }
    engine.close();
    return passes;
  });
}

// An id says its pass: ids 10e … 10e + 9 are those of pass e.
Served all_served(const std::vector<Passes>& ranks) {
  Served all;
  for (const Passes& rank : ranks) {
    for (const Served& step : rank.served) all.insert(all.end(), step.begin(), step.end());
  }
  std::ranges::sort(all);
  return all;
}

TEST(Passes, AnIncompleteTailIsDroppedOnAllReplicasAlike) {
  for (const bool shuffled : {false, true}) {
    for (const bool ahead : {false, true}) {
      SCOPED_TRACE(std::to_string(shuffled) + std::to_string(ahead));
      const std::vector<Passes> ranks = train_over_passes(true, shuffled, ahead, 3);
      for (const Passes& rank : ranks) {
        EXPECT_EQ(rank.positions, (std::vector<std::int64_t>{6, 16, 26}));
        for (std::size_t step = 0; step < 3; ++step) {
          ASSERT_EQ(rank.served[step].size(), 2u);
          for (const std::int64_t id : rank.served[step]) {
            EXPECT_EQ(id / 10, static_cast<std::int64_t>(step)) << "of another pass";
          }
        }
      }
      const Served all = all_served(ranks);
      EXPECT_EQ(all.size(), 18u);
      EXPECT_TRUE(std::ranges::adjacent_find(all) == all.end()) << "a sample was served twice";
    }
  }
}

TEST(Passes, WithoutDroppingEverySampleIsServedOncePerPass) {
  for (const bool shuffled : {false, true}) {
    const std::vector<Passes> ranks = train_over_passes(false, shuffled, false, 5);
    for (const Passes& rank : ranks) {
      EXPECT_EQ(rank.positions, (std::vector<std::int64_t>{6, 12, 18, 24, 30}));
    }
    Served wanted(30);
    std::iota(wanted.begin(), wanted.end(), std::int64_t{0});
    EXPECT_EQ(all_served(ranks), wanted);
  }
}

TEST(Passes, AStepThatIsLongerThanAPassIsRefusedWhereTailsAreDropped) {
  const RunSpec run{.pipe = 2, .micro = 3, .gas = 4, .more = R"({"dataloader_drop_last": true})"};
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run),
                          std::make_unique<model::RepeatingSource>(mlp_samples(10)));
    const std::string error = thrown_by([&] { engine.train_batch(); });
    EXPECT_EQ(engine.data_position(), 0);
    engine.close();
    return error;
  });
  expect_in_all(errors, "[data] a pass over the data has 10 samples, a step takes 12");
}

}  // namespace
}  // namespace penstock::testing
