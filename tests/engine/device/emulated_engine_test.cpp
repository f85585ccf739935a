// What an Engine on emulated devices does beside training: refusals, waits, memory, reports,
// evaluations, saves.
#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "engine/observer.h"
#include "tensor/cuda/cuda.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/checkpoint_runs.h"
#include "tests/engine/device/device_runs.h"
#include "tests/engine/memory_checks.h"

namespace penstock::testing {
namespace {

using engine::RankReport;

const std::string kCuda = R"({"device": {"type": "cuda"}})";
const std::string kShared = R"({"device": {"type": "cuda", "sharing": true}})";
const std::string kAdamW = R"({"type": "AdamW", "params": {"lr": 0.01}})";

class EmulatedEngine : public ::testing::Test {
 protected:
  void SetUp() override { comm::prepare_devices(); }
  void TearDown() override {
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
    cuda_emulation::discard();
  }
};

const tensor::Allocator& memory_of(engine::Engine& engine) {
  return engine.stages().front()->parameters().front().parameter->value.storage()->allocator();
}

// What each rank threw when its engine was built.
std::vector<std::string> refusals(int ranks, int devices, const std::string& more) {
  cuda_emulation::start({.devices = devices});
  return on_ranks<std::string>(ranks, [&](comm::World& world) {
    return thrown_by([&] {
      engine::Engine engine(world, mlp8(), config_of(RunSpec{.pipe = ranks, .more = more}),
                            mlp_samples(64));
      engine.close();
    });
  });
}

TEST_F(EmulatedEngine, IsRefusedOnAllRanksWhereOneHasNoDevice) {
  for (const std::string& error : refusals(2, 0, kCuda)) {
    EXPECT_NE(error.find("rank 0 (local rank 0 of the 2 on host "), std::string::npos) << error;
    EXPECT_NE(error.find("where it sees 0 devices) has no device"), std::string::npos) << error;
  }
  for (const std::string& error : refusals(4, 1, kCuda)) {
    EXPECT_NE(error.find("rank 1 (local rank 1 of the 4 on host "), std::string::npos) << error;
    EXPECT_NE(error.find("where it sees 1 device) would have device "), std::string::npos) << error;
  }
  for (const std::string& error :
       refusals(4, 1, R"({"device": {"type": "cuda", "sharing": true, "transport": "nccl"}})")) {
    EXPECT_NE(error.find("NCCL needs a device for each rank"), std::string::npos) << error;
  }
  for (const std::string& error : refusals(4, 1, kShared)) EXPECT_EQ(error, "");
}

// Counts waits for the device, and those before the step of the optimizer.
struct WaitCounter final : engine::Observer {
  void before(std::int64_t, const schedule::Instruction& instruction) override {
    if (instruction.opcode == schedule::Opcode::kOptimizerStep) {
      in_passes += waits() - at_begin;
    }
  }
  void after(std::int64_t, const schedule::Instruction&) override {}
  void begin_stream(std::int64_t) override { at_begin = waits(); }
  std::int64_t waits() const {
    return tensor::cuda::host_waits(*memory) + cuda_emulation::counters().host_waits;
  }

  const tensor::Allocator* memory = nullptr;
  std::int64_t at_begin = 0, in_passes = 0;
};

// Of the third step; none may be in its passes.
std::int64_t waits_of_a_step(int micro_batches, int layers) {
  cuda_emulation::start({.devices = 1});
  std::int64_t waits = 0;
  comm::run_local(1, {}, [&](comm::World& world) {
    model::Module module = small_gpt2();
    module.layers.insert(module.layers.begin() + 3, static_cast<std::size_t>(layers),
                         module.layers[2]);
    engine::Engine engine(
        world, module,
        config_of(RunSpec{.gas = micro_batches, .optimizer = kAdamW, .clip = 1.0, .more = kCuda}),
        small_tokens());
    engine.train_batch();
    engine.train_batch();
    WaitCounter counter;
    counter.memory = &memory_of(engine);
    engine.add_observer(counter);
    const std::int64_t before = counter.waits();
    engine.train_batch();
    waits = counter.waits() - before;
    EXPECT_EQ(counter.in_passes, 0);
    engine.close();
  });
  return waits;
}

TEST_F(EmulatedEngine, WaitsForTheDeviceAtTheEndOfAStepAlone) {
  const std::int64_t waits = waits_of_a_step(2, 0);
  EXPECT_GE(waits, 2);  // the norm and the losses are read
  EXPECT_LE(waits, 8);  // some calls count for both
  EXPECT_EQ(waits_of_a_step(6, 0), waits);
  EXPECT_EQ(waits_of_a_step(2, 3), waits);
}

TEST_F(EmulatedEngine, HoldsNoMoreThanThePlanSays) {
  for (const char* schedule : {"1f1b", "zb_h1", "interleaved_1f1b"}) {
    SCOPED_TRACE(schedule);
    cuda_emulation::start({.devices = 2});
    nlohmann::json more = nlohmann::json::parse(kCuda);
    more["pipeline"]["schedule"] = schedule;
    if (std::string(schedule) == "interleaved_1f1b") more["pipeline"]["chunks"] = 2;
    const RunSpec run{.pipe = 2, .gas = 6, .optimizer = kAdamW, .more = more.dump()};
    const auto ranks = on_ranks<MemoryComparison>(2, [&](comm::World& world) {
      return measure_training(world, small_gpt2(), config_of(run), [] { return small_tokens(); });
    });
    for (const MemoryComparison& rank : ranks) expect_as_planned(rank);
  }
}

TEST_F(EmulatedEngine, ReportsDevicesAndShowsInstructionsToProfilers) {
  cuda_emulation::start({.devices = 2});
  Lines lines;
  const RunSpec run{
      .pipe = 2,
      .optimizer = kAdamW,
      .more = R"({"device": {"type": "cuda"}, "memory_breakdown": true, "steps_per_print": 1})"};
  const auto reports = with_engines<std::vector<RankReport>>(
      mlp8(),
      [](comm::World&, engine::Engine& engine) {
        train(engine, 2);
        return engine.rank_reports();
      },
      run, &lines);
  EXPECT_TRUE(lines.say("rank 0 on cuda:0, transfers by NCCL"));
  EXPECT_TRUE(lines.say("; the driver: "));
  for (const RankReport& report : reports[0]) {
    ASSERT_TRUE(report.device.has_value());
    EXPECT_GT(report.device->allocated, 0);
    EXPECT_GE(report.device->peak, report.device->allocated);
    EXPECT_GE(report.device->peak, report.peak_bytes / 2);
  }
  const auto ranges = cuda_emulation::counters().ranges;
  std::int64_t forwards = 0;  // of micro batch 3, in whichever buffer
  for (const auto& [name, count] : ranges) {
    if (name.starts_with("ForwardPass(c0 m3 ")) forwards += count;
  }
  EXPECT_EQ(forwards, 4);
  std::string names;
  for (const auto& [name, count] : ranges) names += name + " ";
  EXPECT_NE(names.find("OptimizerStep"), std::string::npos) << names;
}

TEST_F(EmulatedEngine, EvaluatesAsTheCpuDoesAndGivesOutputsOnTheHost) {
  const auto evaluate = [](const std::string& more) {
    return with_engines<engine::EvalResult>(
        mlp8(),
        [](comm::World&, engine::Engine& engine) {
          train(engine, 1);
          return engine.eval_batch(*mlp_samples(64),
                                   {.micro_batches = 3, .outputs = engine::EvalOutputs::kMerged});
        },
        {.pipe = 2, .more = more});
  };
  const auto on_cpu = evaluate("{}");
  cuda_emulation::start({.devices = 2});
  const auto on_devices = evaluate(kCuda);
  EXPECT_NEAR(on_devices[0].loss.value(), on_cpu[0].loss.value(), 1e-5 * *on_cpu[0].loss);
  ASSERT_EQ(on_devices[1].merged_outputs.size(), 1u);
  const std::vector<float> got = floats_of(on_devices[1].merged_outputs[0]);
  const std::vector<float> wanted = floats_of(on_cpu[1].merged_outputs[0]);
  EXPECT_EQ(on_devices[1].merged_outputs[0].device(), tensor::kCpuDevice);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5);
}

TEST_F(EmulatedEngine, FindsAScheduleFromWhatDevicesTook) {
  cuda_emulation::start({.devices = 2});
  const RunSpec run{
      .pipe = 2,
      .gas = 4,
      .more = R"({"device": {"type": "cuda"}, "pipeline": {"schedule": "auto", "chunks": 2}})"};
  with_engines<int>(
      mlp8(),
      [](comm::World&, engine::Engine& engine) {
        train(engine, 5);
        EXPECT_NE(engine.found_schedule(), nullptr);
        return 0;
      },
      run);
}

}  // namespace
}  // namespace penstock::testing
