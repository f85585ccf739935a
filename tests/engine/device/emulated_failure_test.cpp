// Steps on emulated devices that fail: every rank ends and knows why.
#include <gtest/gtest.h>

#include "comm/device/devices.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/engine/device/device_runs.h"

namespace penstock::testing {
namespace {

// What a failed rank leaves on a device is its own.
class EmulatedFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    comm::prepare_devices();
    cuda_emulation::start({.devices = 2});
  }
  void TearDown() override { cuda_emulation::discard(); }

  static engine::Config config() {
    return config_of(ModelGrid{.pipe = 2}, kClippedAdamW, R"({"device": {"type": "cuda"}})");
  }
};

// Tokens that the model has, but for one.
std::unique_ptr<model::DataSource> tokens_with_a_stranger(bool label) {
  std::vector<std::int64_t> good(8 * kSmallContext, 1), bad = good;
  bad[5] = kSmallVocabulary + 3;
  const tensor::Context context(tensor::make_cpu_allocator());
  const tensor::Shape shape{8, kSmallContext};
  const auto make = [&](bool stranger) {
    return std::vector{tensor::Tensor::from<std::int64_t>(context, shape, stranger ? bad : good)};
  };
  return std::make_unique<model::RepeatingSource>(
      std::make_unique<model::InMemorySource>(make(!label), make(label)));
}

TEST_F(EmulatedFailure, DataThatAKernelRefusesEndsTheCallThatBroughtThem) {
  for (const bool label : {false, true}) {
    for (const bool training : {true, false}) {
      SCOPED_TRACE(std::string(label ? "a label" : "an input") + (training ? "" : ", evaluation"));
      cuda_emulation::start({.devices = 2});
      const auto errors = on_ranks<std::string>(2, [&](comm::World& world) {
        engine::Engine engine(world, small_gpt2(), config(), small_tokens());
        engine.train_batch();
        const auto bad = tokens_with_a_stranger(label);
        return thrown_by(
            [&] { training ? (void)engine.train_batch(*bad) : (void)engine.eval_batch(*bad); });
      });
      const std::size_t finder = label ? 1 : 0;  // the first stage looks inputs up, the last labels
      EXPECT_NE(errors[finder].find("16"), std::string::npos) << errors[finder];
      EXPECT_NE(errors[finder].find("13"), std::string::npos) << errors[finder];
      EXPECT_TRUE(errors[1 - finder].starts_with("PeerLost: ")) << errors[1 - finder];
      cuda_emulation::discard();
    }
  }
}

TEST_F(EmulatedFailure, LeavesNothingOnDevices) {
  for (const std::string device : {R"("transport": "nccl")", R"("transport": "staged")",
                                   R"("sharing": true)", R"("graphs": true)"}) {
    for (const schedule::Opcode opcode :
         {schedule::Opcode::kReduceGrads, schedule::Opcode::kOptimizerStep}) {
      SCOPED_TRACE(device + ", " + std::string(schedule::name(opcode)));
      cuda_emulation::start({.devices = 4});
      const auto errors = on_ranks<std::string>(4, [&](comm::World& world) {
        const auto config = config_of(ModelGrid{.pipe = 2, .data = 2}, kClippedAdamW,
                                      R"({"device": {"type": "cuda", )" + device + "}}");
        engine::Engine engine(world, small_gpt2(), config, small_tokens());
        engine.train_batch();
        if (world.rank() == 1) {
          engine.replace_handler(opcode, [](const schedule::Instruction&, const auto&) {
            throw std::runtime_error("this fails");
          });
        }
        return thrown_by([&] { engine.train_batch(); });
      });
      for (const std::string& error : errors) {
        EXPECT_NE(error.find("this fails"), std::string::npos) << error;
      }
      EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
    }
  }
}

TEST_F(EmulatedFailure, ABrokenConnectionEndsAllRanks) {
  const auto errors = on_ranks<std::string>(2, [&](comm::World& world) {
    engine::Engine engine(world, small_gpt2(), config(), small_tokens());
    engine.train_batch();
    world.all().barrier().wait();
    if (world.rank() == 0) cuda_emulation::break_communicators(0);
    return thrown_by([&] {
      for (int step = 0; step < 3; ++step) engine.train_batch();
    });
  });
  const std::string what = "[nccl] the activation channel from rank 0 to rank 1 failed";
  for (const std::string& error : errors) EXPECT_NE(error.find(what), std::string::npos) << error;
}

}  // namespace
}  // namespace penstock::testing
