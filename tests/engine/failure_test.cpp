// A step that fails half-way, with ranks as threads: all ranks end, with one first cause that names
// its place; the engine refuses further calls, and the last checkpoint is whole.
#include <atomic>
#include <set>

#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "schedule/text.h"
#include "tests/engine/failing_loss.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using schedule::Instruction;

struct Outcome {
  std::string error;
  comm::FailureCause cause;
  std::vector<std::string> later;  // errors of all collective calls afterwards
};

// What the call threw; the cause is that of an ExecutionError or a PeerLost.
void keep_error(const std::function<void()>& call, Outcome& outcome) {
  outcome.error = thrown_by([&] {
    try {
      call();
    } catch (const engine::ExecutionError& error) {
      outcome.cause = error.cause();
      throw;
    } catch (const comm::PeerLost& error) {
      outcome.cause = error.cause();
      throw;
    }
  });
}

std::vector<std::string> errors_of_all_calls(engine::Engine& engine,
                                             const std::filesystem::path& folder) {
  return {thrown_by([&] { engine.train_batch(); }),
          thrown_by([&] { engine.eval_batch(*mlp_samples(64)); }),
          thrown_by([&] { engine.save_checkpoint(folder, "never"); }),
          thrown_by([&] { engine.load_checkpoint(folder); }), thrown_by([&] { engine.close(); })};
}

TEST(Failure, OfTheLossEndsAllRanksWithItsPlace) {
  const TemporaryFolder folder;
  model::Module module = mlp8();
  auto loss = std::make_shared<FailingLoss>(/*micro_batch=*/3);
  module.loss = loss;
  const RunSpec run{.pipe = 4, .gas = 6};
  const auto outcomes = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), mlp_samples(64));
    engine.train_batch();
    engine.save_checkpoint(folder.path(), "step1");
    loss->arm();
    Outcome outcome;
    keep_error([&] { engine.train_batch(); }, outcome);
    outcome.later = errors_of_all_calls(engine, folder.path());
    return outcome;
  });
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const Outcome& outcome = outcomes[rank];
    EXPECT_TRUE(outcome.error.starts_with(rank == 3 ? "ExecutionError: " : "PeerLost: peer lost: "))
        << outcome.error;
    EXPECT_EQ(outcome.cause.rank, 3);
    EXPECT_EQ(outcome.cause.stage, 3);
    EXPECT_EQ(outcome.cause.instruction, "ForwardPass(c0 m3 b0)");
    EXPECT_EQ(outcome.cause.micro_batch, 3);
    EXPECT_EQ(outcome.cause.message, "the loss fails here");
    for (const std::string& later : outcome.later) {
      EXPECT_NE(later.find("this engine cannot be used any more"), std::string::npos) << later;
      EXPECT_NE(later.find("load the last checkpoint"), std::string::npos) << later;
    }
  }
  // A new world goes on from the last checkpoint.
  const auto steps = on_ranks<std::int64_t>(2, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of({.pipe = 2, .gas = 6}), mlp_samples(64));
    EXPECT_EQ(engine.load_checkpoint(folder.path()).tag, "step1");
    engine.train_batch();
    engine.close();
    return engine.global_steps();
  });
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 2}));
}

// The instruction that a step fails at, wherever it is.
class FailAt final : public engine::Observer {
 public:
  FailAt(std::string instruction, bool after)
      : instruction_(std::move(instruction)), after_(after) {}
  void before(std::int64_t, const Instruction& instruction) override { check(instruction, false); }
  void after(std::int64_t, const Instruction& instruction) override { check(instruction, true); }

 private:
  void check(const Instruction& instruction, bool after) {
    if (after == after_ && schedule::to_text(instruction) == instruction_) {
      throw std::runtime_error("injected");
    }
  }
  std::string instruction_;
  bool after_;
};

// Each kind of instruction that a rank runs, once.
std::vector<std::string> kinds_of(int ranks, int micro_batches, int rank) {
  const auto schedule = schedule::make_schedule(
      "1f1b", {.ranks = ranks, .micro_batches = micro_batches, .rank = schedule::PipeRank(rank)});
  std::set<schedule::Opcode> seen;
  std::vector<std::string> result;
  for (const schedule::Step& step : schedule::steps(*schedule)) {
    for (const Instruction& instruction : step) {
      if (seen.insert(instruction.opcode).second) result.push_back(to_text(instruction));
    }
  }
  return result;
}

TEST(Failure, AtAnyInstructionOfAnyStageEndsAllRanksWithItsPlace) {
  const RunSpec run{.pipe = 3, .data = 2, .gas = 4, .more = kUniform};
  int injected = 0;
  for (const int bad : {0, 3, 4}) {
    const int stage = bad / run.data;
    for (const std::string& instruction : kinds_of(run.pipe, run.gas, stage)) {
      const bool after = injected++ % 2 == 1;
      SCOPED_TRACE("rank " + std::to_string(bad) + ", " + instruction);
      const auto outcomes = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
        engine::Engine engine(world, tie6(), config_of(run), token_samples(64));
        FailAt fault(instruction, after);
        if (world.rank() == bad) engine.add_observer(fault);
        Outcome outcome;
        // A rank that needs nothing more of the failed one may end its step; not the next one.
        keep_error(
            [&] {
              engine.train_batch();
              engine.train_batch();
            },
            outcome);
        return outcome;
      });
      for (const Outcome& outcome : outcomes) {
        EXPECT_EQ(outcome.cause.rank, bad) << outcome.error;
        EXPECT_EQ(outcome.cause.stage, stage);
        EXPECT_EQ(outcome.cause.instruction, instruction);
        EXPECT_EQ(outcome.cause.message, "injected");
      }
    }
  }
  EXPECT_GT(injected, 20);
}

// A layer's own exception is nested, and the text names the layer.
TEST(Failure, OfAHandlerThatReceivesNothingIsFound) {
  const RunSpec run{.pipe = 2};
  const auto outcomes = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    engine.replace_handler(schedule::Opcode::kRecvActivation,
                           [](const Instruction&, const std::function<void()>&) {});
    Outcome outcome;
    keep_error([&] { engine.train_batch(); }, outcome);
    return outcome;
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.cause.rank, 1);
    EXPECT_NE(outcome.error.find("there are no inputs of micro batch 0"), std::string::npos)
        << outcome.error;
  }
}

TEST(Failure, OfALayerNamesTheLayer) {
  class Breaks final : public model::Layer {
   public:
    std::vector<model::Tensor> forward(model::Context& context,
                                       std::span<const model::Tensor> inputs) override {
      if (context.micro_batch == 2) throw std::length_error("too long");
      return {inputs.begin(), inputs.end()};
    }
  };
  model::Module module = mlp8();
  module.layers[5] = model::layer<Breaks>("Breaks");
  const RunSpec run{.pipe = 4};
  const auto outcomes = on_ranks<Outcome>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), mlp_samples(64));
    Outcome outcome;
    keep_error([&] { engine.eval_batch(*mlp_samples(64)); }, outcome);
    return outcome;
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.cause.rank, 2) << outcome.error;
    EXPECT_EQ(outcome.cause.micro_batch, 2);
    EXPECT_EQ(outcome.cause.message, "layer 5 (Breaks): too long");
  }
}

// A rank that is refused before the stream takes nobody with it: all go on.
TEST(Failure, BeforeTheStreamLeavesEveryEngineUsable) {
  class Unreadable final : public model::DataSource {
   public:
    std::optional<model::MicroBatch> next(std::int64_t) override {
      throw std::runtime_error("the disk is gone");
    }
    std::int64_t position() const override { return 0; }
    void seek(std::int64_t) override {}
    std::optional<std::int64_t> remaining() const override { return std::nullopt; }
  };
  const RunSpec run{.pipe = 3};
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    std::unique_ptr<model::DataSource> source = mlp_samples(64);
    if (world.rank() == 0) source = std::make_unique<Unreadable>();
    engine::Engine engine(world, mlp8(), config_of(run), std::move(source));
    std::string error = thrown_by([&] { engine.train_batch(); });
    if (world.rank() == 0) engine.set_data(mlp_samples(64));
    EXPECT_EQ(engine.train_batch().step, 1);
    engine.close();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "CallRefused: [train_batch] rank 0: the disk is gone");
  }
}

// Ranks that make different calls learn it, all of them.
TEST(Failure, OfRanksToCallTheSameIsFound) {
  const RunSpec run{.pipe = 2};
  const TemporaryFolder folder;
  const auto errors = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    return thrown_by([&] {
      if (world.rank() == 0) {
        engine.train_batch();
      } else {
        engine.save_checkpoint(folder.path());
      }
    });
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("the ranks do not agree on the kind of call"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace penstock::testing
