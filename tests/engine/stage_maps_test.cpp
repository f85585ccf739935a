// Several stages on a rank: any map of stages to ranks, layers cut into all stages, checkpoints
// that move between maps, tied weights within and across ranks, what reports say.
#include <map>
#include <mutex>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/trace.h"
#include "tests/engine/schedule_runs.h"

namespace penstock::testing {
namespace {

// Maps where neighbours share a rank, and where a rank has stages far apart.
const std::vector<std::pair<int, std::string>> kMaps = {{1, "[0,0,0]"},
                                                        {2, "[0,0,1,1]"},
                                                        {2, "[1,0,0,1]"},
                                                        {2, "[1,1,1,0]"},
                                                        {2, "[0,1,0,0,1,0]"},
                                                        {3, "[2,0,1]"},
                                                        {3, "[0,1,2,2,2,1,0]"},
                                                        {3, "[1,0,0,2,1,1,0,2]"},
                                                        {4, "[3,2,1,0,0,1,2,3]"},
                                                        {2, "\"v\""},
                                                        {3, "\"v\""}};

ScheduleRun on_map(int pipe, const std::string& map, const std::string& schedule = "gpipe") {
  return {.schedule = schedule,
          .pipe = pipe,
          .chunks = map == "\"v\"" ? 3 : 1,
          .stage_map = map,
          .gas = 5};
}

TEST(StageMaps, AnyMapTrainsAsOneStageDoes) {
  for (const Subject& subject : {mlp(12), gpt12()}) {
    const ScheduleOutcome one_stage = train(subject, {.gas = 5});
    for (const auto& [pipe, map] : kMaps) {
      const ScheduleRun run = on_map(pipe, map);
      SCOPED_TRACE(subject.name + " " + run.text());
      const ScheduleOutcome outcome = train(subject, run);
      EXPECT_EQ(outcome.stages, run.stages());
      EXPECT_TRUE(outcome.in_order);
      expect_equal_training(outcome, one_stage);
    }
  }
}

TEST(StageMaps, AnyMapEvaluatesAsOneStageDoes) {
  const auto losses_on = [](const ScheduleRun& run) {
    return on_ranks<std::vector<double>>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, gpt12().module(), run.config());
      const auto held_out = gpt12().data();
      std::vector<double> losses = engine.eval_batch(*held_out, {.micro_batches = 7}).micro_losses;
      losses.push_back(engine.eval_batch(*held_out, {.micro_batches = 1}).loss.value());
      engine.close();
      return losses;
    });
  };
  const std::vector<double> wanted = losses_on({})[0];
  EXPECT_NE(wanted[0], wanted[1]);
  for (const auto& [pipe, map] : kMaps) {
    const ScheduleRun run = on_map(pipe, map);
    SCOPED_TRACE(run.text());
    for (const auto& losses : losses_on(run)) EXPECT_EQ(losses, wanted);
  }
}

// --- every layer, once

// The layers of each stage of a model, from what the ranks hold.
std::vector<std::vector<std::int64_t>> layers_on(int layers, const ScheduleRun& run,
                                                 const std::string& partition) {
  std::vector<std::vector<std::int64_t>> stages(static_cast<std::size_t>(run.stages()));
  std::mutex mutex;
  engine::Config config = run.config();
  config.pipeline.partition = partition;
  on_ranks<bool>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp(layers).module(), config);
    const auto ids =
        engine.stage_map().stages_of(schedule::PipeRank(engine.grid().position(world.rank()).pipe));
    EXPECT_EQ(ids.size(), engine.stages().size());
    for (std::size_t chunk = 0; chunk < ids.size(); ++chunk) {
      const model::Stage& stage = *engine.stages()[chunk];
      const std::lock_guard lock(mutex);
      auto& list = stages[static_cast<std::size_t>(ids[chunk].value)];
      for (std::int64_t layer = stage.begin(); layer < stage.end(); ++layer) list.push_back(layer);
      // The stage holds the weights of these layers, not only their numbers.
      EXPECT_EQ(stage.parameters().front().name, std::to_string(stage.begin()) + ".linear.weight");
      EXPECT_EQ(std::ssize(stage.parameters()), 2 * std::ssize(list));
    }
    engine.close();
    return true;
  });
  return stages;
}

TEST(StageMaps, EveryLayerIsOnOneStage) {
  for (const auto& [layers, pipe, chunks] :
       {std::tuple{80, 16, 2}, {40, 8, 2}, {10, 3, 1}, {7, 2, 2}, {6, 2, 3}}) {
    for (const std::string partition : {"uniform", "parameters", "best", "type:linear"}) {
      for (const std::string map : {"\"loop\"", "\"v\""}) {
        const ScheduleRun run{
            .schedule = "gpipe", .pipe = pipe, .chunks = chunks, .stage_map = map};
        SCOPED_TRACE(run.text() + ", " + partition);
        std::int64_t next = 0;
        for (const auto& stage : layers_on(layers, run, partition)) {
          EXPECT_FALSE(stage.empty());
          for (const std::int64_t layer : stage) EXPECT_EQ(layer, next++);
        }
        EXPECT_EQ(next, layers);
      }
    }
  }
}

TEST(StageMaps, FewerLayersThanStagesAreRefusedWithTheNumbers) {
  const auto error = [](int layers, const ScheduleRun& run) {
    return on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
      return thrown_by([&] { engine::Engine(world, mlp(layers).module(), run.config()); });
    })[static_cast<std::size_t>(run.ranks()) - 1];
  };
  EXPECT_EQ(error(5, {.schedule = "gpipe", .pipe = 2, .chunks = 3}),
            "ConfigError: the module has 5 layers, fewer than the 6 stages (pipeline.stages 2 x "
            "pipeline.chunks 3); expected at least one layer per stage");
  EXPECT_EQ(error(2, on_map(2, "[0,1,0]")),
            "ConfigError: the module has 2 layers, fewer than the 3 stages (pipeline.stage_map "
            "0,1,0); expected at least one layer per stage");
}

TEST(StageMaps, BoundsCutIntoAllStages) {
  engine::Config config = ScheduleRun{.schedule = "gpipe", .pipe = 2, .chunks = 2}.config();
  config.pipeline.partition = "best";
  config.pipeline.bounds = {0, 1, 5, 6, 8};
  on_ranks<bool>(2, [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config);
    EXPECT_TRUE(std::ranges::equal(engine.bounds(), config.pipeline.bounds));
    EXPECT_EQ(engine.stages()[1]->begin(), world.rank() == 0 ? 5 : 6);
    EXPECT_EQ(engine.stages()[1]->end(), world.rank() == 0 ? 6 : 8);
    engine.close();
    return true;
  });
}

// --- tied weights

TEST(StageMaps, ARankHoldsATiedWeightOnce) {
  const ScheduleRun run{.schedule = "zbv", .pipe = 2, .chunks = 2, .gas = 2};
  const std::string table = "tied_modules.wte.weight";
  on_ranks<bool>(2, [&](comm::World& world) {
    engine::Engine engine(world, gpt12().module(), run.config(), gpt12().data());
    int uses = 0, held = 0;
    const void* memory = nullptr;
    for (const auto& stage : engine.stages()) {
      for (const model::StageParameter& parameter : stage->parameters()) {
        if (parameter.name != table) continue;
        ++uses;
        held += parameter.borrowed ? 0 : 1;
        if (memory == nullptr) memory = parameter.parameter->value.raw();
        EXPECT_EQ(parameter.parameter->value.raw(), memory);
        EXPECT_EQ(parameter.uses.size(), 1u);  // each use has its own gradient
      }
    }
    // Embedding and head are the first and the last stage, both on rank 0.
    EXPECT_EQ(uses, world.rank() == 0 ? 2 : 0);
    EXPECT_EQ(held, world.rank() == 0 ? 1 : 0);
    engine.train_batch();
    EXPECT_EQ(values_of(engine, table).size(), world.rank() == 0 ? 32u * 8u : 0u);
    engine.close();
    return true;
  });
}

// A layer with a tie key that no other layer has is a weight like any other.
TEST(StageMaps, ATieOfOneUseTrainsOnReplicasToo) {
  const auto module = [](bool tied) {
    model::Module result = mlp8();
    if (tied) result.layers[2].tie_key = "alone";
    return result;
  };
  const auto train_on = [](const model::Module& model, const RunSpec& run) {
    const auto by_rank = on_ranks<std::pair<double, Weights>>(run.ranks(), [&](comm::World& world) {
      engine::Engine engine(world, model, config_of(run), mlp_samples(64));
      engine.train_batch();
      const double loss = engine.train_batch().loss;
      Weights weights = weights_of(engine);
      engine.close();
      return std::pair(loss, std::move(weights));
    });
    std::vector<Weights> weights;
    for (const auto& rank : by_rank) weights.push_back(rank.second);
    merged(weights);  // fails where replicas differ
    return by_rank[0].first;
  };
  const RunSpec run{.pipe = 2, .data = 2, .gas = 2};
  EXPECT_EQ(train_on(module(true), run), train_on(module(false), run));
}

// --- checkpoints

TEST(StageMaps, CheckpointsMoveBetweenMaps) {
  const ScheduleRun first{.pipe = 2, .gas = 4};
  std::vector<ScheduleRun> others = {
      {.gas = 4},
      {.pipe = 3, .gas = 4},
      {.pipe = 4, .gas = 4},
      {.schedule = "interleaved_1f1b", .pipe = 2, .chunks = 2, .gas = 4},
      {.schedule = "zb1p", .pipe = 2, .chunks = 3, .gas = 4},
      {.schedule = "zbv", .pipe = 2, .chunks = 2, .gas = 4},
      {.schedule = "zbv", .pipe = 3, .chunks = 2, .gas = 4}};
  for (const auto& [pipe, map] : kMaps) {
    others.push_back(on_map(pipe, map));
    others.back().gas = 4;
  }
  struct Part {
    Weights loaded, trained;
    std::vector<double> losses;
    bool operator==(const Part&) const = default;
  };
  for (const Subject& subject : {mlp(12, 0.1), gpt12()}) {
    const TemporaryFolder folder;
    // Trains a little and saves, or loads; then five steps.
    const auto run_on = [&](const ScheduleRun& run, const std::string& load,
                            const std::string& save) {
      const auto parts = on_ranks<Part>(run.ranks(), [&](comm::World& world) {
        engine::Engine engine(world, subject.module(), run.config(), subject.data());
        if (load.empty()) {
          engine.train_batch();
          engine.train_batch();
        } else {
          engine.load_checkpoint(folder.path(), load);
        }
        Part part;
        part.loaded = weights_of(engine);
        if (!save.empty()) engine.save_checkpoint(folder.path(), save);
        for (int step = 0; step < 5; ++step) part.losses.push_back(engine.train_batch().loss);
        part.trained = weights_of(engine);
        engine.close();
        return part;
      });
      std::vector<Weights> loaded, trained;
      for (const Part& part : parts) {
        loaded.push_back(part.loaded);
        trained.push_back(part.trained);
      }
      return Part{merged(loaded), merged(trained), parts[0].losses};
    };
    const Part wanted = run_on(first, "", "start");
    for (std::size_t i = 0; i < others.size(); ++i) {
      SCOPED_TRACE(subject.name + " " + others[i].text());
      const std::string tag = i % 3 == 0 ? "map" + std::to_string(i) : "";  // files take time
      EXPECT_EQ(run_on(others[i], "start", tag), wanted);
      if (!tag.empty()) {
        EXPECT_EQ(run_on(first, tag, ""), wanted) << "saved by it";
      }
      if (HasFailure()) return;
    }
  }
}

// --- what the engine says of itself

TEST(StageMaps, ReportsNameEveryStageAndItsRank) {
  const ScheduleRun run{.schedule = "zbv", .pipe = 2, .chunks = 2, .gas = 4};
  on_ranks<bool>(2, [&](comm::World& world) {
    engine::Engine engine(world, gpt12().module(), run.config(), gpt12().data());
    const std::string& report = engine.startup_report();
    for (const char* line :
         {", schedule zbv\n", "pipe rank 0: parameters ", "\n  stage 0: layers 0-2 (3), ",
          "\n  stage 3: layers 9-11 (3), ", "pipe rank 1: parameters ",
          "\n  stage 1: layers 3-5 (3), ", "\n  stage 2: layers 6-8 (3), "}) {
      EXPECT_NE(report.find(line), std::string::npos) << line << "\nis not in\n" << report;
    }
    EXPECT_LT(report.find("stage 3"), report.find("stage 1"));

    engine::TraceRecorder trace;
    trace.start(world);
    engine.add_observer(trace);
    engine.train_batch();
    engine.remove_observer(trace);
    const std::string text =
        trace.finish(world, engine.stage_map().stages_of(schedule::PipeRank(world.rank())), 0);
    engine.close();
    if (world.rank() != 0) return true;
    EXPECT_NE(text.find("rank 0 (stages 0, 3, replica 0)"), std::string::npos);
    std::map<int, int> forwards;  // by stage
    const auto trace_of_all = nlohmann::json::parse(text);
    for (const auto& event : trace_of_all.at("traceEvents")) {
      if (event.at("name") != "ForwardPass") continue;
      ++forwards[event.at("args").at("stage").get<int>()];
    }
    EXPECT_EQ(forwards, (std::map<int, int>{{0, 4}, {1, 4}, {2, 4}, {3, 4}}));
    return true;
  });
}

TEST(StageMaps, AFailureNamesTheStageItWasIn) {
  const ScheduleRun run{.schedule = "interleaved_1f1b", .pipe = 2, .chunks = 3, .gas = 2};
  const auto causes = on_ranks<std::string>(2, [&](comm::World& world) {
    engine::Engine engine(world, mlp(12).module(), run.config(), mlp_samples(64));
    engine.replace_handler(schedule::Opcode::kForwardPass,
                           [](const schedule::Instruction& instruction, const auto& go_on) {
                             if (instruction.chunk.value == 2) throw std::runtime_error("broken");
                             go_on();
                           });
    return thrown_by([&] { engine.train_batch(); });
  });
  for (const std::string& cause : causes) {
    EXPECT_NE(cause.find("rank 0 (stage 4, ForwardPass(c2 m0 "), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace penstock::testing
