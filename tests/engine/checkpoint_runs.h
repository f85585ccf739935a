// Runs that save and load, for the tests of what checkpoints may be told.
#pragma once

#include <algorithm>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {

using Names = std::vector<std::string>;

inline const RunSpec kRun{.pipe = 2,
                          .optimizer = R"({"type": "AdamW", "params": {"lr": 0.01}})",
                          .more = R"({"scheduler": {"type": "WarmupLR", "params":
                       {"warmup_max_lr": 0.01, "warmup_num_steps": 50}}})"};

inline model::Module layers(std::size_t count) {
  model::Module module = mlp8();
  module.layers.resize(count);
  return module;
}

// Collects the lines of one rank.
class Lines final : public tensor::Log {
 public:
  void write(const tensor::LogEvent& event) noexcept override {
    const std::lock_guard lock(mutex_);
    text_ += event.message + "\n";
  }
  bool say(const std::string& text) const { return text_.find(text) != std::string::npos; }

 private:
  std::mutex mutex_;
  std::string text_;
};

// Runs on each rank of kRun, with an engine of its own.
template <class Result>
std::vector<Result> with_engines(const model::Module& module,
                                 const std::function<Result(comm::World&, engine::Engine&)>& use,
                                 const RunSpec& run = kRun, tensor::Log* log = nullptr) {
  return on_ranks<Result>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, module, config_of(run), mlp_samples(64),
                          {.log = world.rank() == 0 ? log : nullptr});
    Result result = use(world, engine);
    engine.close();
    return result;
  });
}

inline void train(engine::Engine& engine, int steps) {
  for (int step = 0; step < steps; ++step) engine.train_batch();
}

// A run of so many steps, saved.
inline Weights save_after(const std::filesystem::path& folder, const model::Module& module,
                          int steps, const std::string& tag,
                          const engine::SaveOptions& options = {}) {
  return merged(with_engines<Weights>(module, [&](comm::World&, engine::Engine& engine) {
    train(engine, steps);
    engine.save_checkpoint(folder, tag, options);
    return weights_of(engine);
  }));
}

inline nlohmann::json engine_json_of(const std::filesystem::path& folder, const std::string& tag) {
  std::ifstream in(folder / tag / "engine.json");
  return nlohmann::json::parse(in);
}

// Whether all elements of a stored tensor are zero.
inline bool is_zero(const std::filesystem::path& folder, const std::string& tag,
                    const std::string& name) {
  return on_ranks<bool>(1, [&](comm::World& world) {
    const auto reader = checkpoint::Reader::open(world, folder, tag);
    const checkpoint::TensorInfo& info = reader.info(name);
    const auto value = tensor::Tensor::empty(tensor::make_cpu_allocator(), info.shape, info.dtype);
    reader.read(name, value);
    return std::ranges::all_of(value.span<float>(), [](float x) { return x == 0.0f; });
  })[0];
}

// The same error on every rank, which names all of these.
inline void expect_all_say(const Names& errors, const Names& texts) {
  for (const std::string& error : errors) {
    EXPECT_EQ(error, errors[0]);
    for (const std::string& text : texts) {
      EXPECT_NE(error.find(text), std::string::npos) << error << "\nlacks: " << text;
    }
  }
}

}  // namespace penstock::testing
