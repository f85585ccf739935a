// Models, data, grids and a reference run that the engine's tests share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/engine.h"
#include "model/module.h"
#include "tests/engine/grid_run.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {

// --- models
inline constexpr std::int64_t kWidth = 16;

// Linear(16→16, +bias) and tanh in one layer, so that a model has as many layers as it says.
// Parameters: linear.weight, linear.bias.
model::LayerSpec linear_tanh();
// Eight of them with a mean-squared-error loss; with a rate, each followed by dropout inside its
// layer.
model::Module mlp8(double dropout = 0.0);
// Embedding(32×16, tie key "emb") → 4 × [x + Linear(LayerNorm(x))] → head with the tied matrix →
// token-mean cross-entropy. Six layers.
model::Module tie6();

// --- data: sample i is a pure function of i
// Every id that a source served, in order.
using Served = std::vector<std::int64_t>;
// x [16] and target [16].
std::unique_ptr<model::DataSource> mlp_samples(std::int64_t count, Served* served = nullptr);
// Six tokens of 32, and for each the next one.
std::unique_ptr<model::DataSource> token_samples(std::int64_t count, Served* served = nullptr);

// --- weights and gradients, by logical name
using Weights = std::map<std::string, std::vector<float>>;

// Values for every parameter of the module that no initial draw gave.
Weights start_weights(const model::Module& module);
void set_weights(engine::Engine& engine, const Weights& weights);
// Of this rank's stages.
Weights weights_of(engine::Engine& engine);
// Of the last step, summed over all replicas and uses; of this rank's stages.
Weights gradients_of(engine::Engine& engine);
// All ranks' weights in one; fails the test where two ranks hold a weight with different bits.
Weights merged(const std::vector<Weights>& by_rank);
// Fails the test unless ‖actual − wanted‖ ≤ tolerance · ‖wanted‖ for each wanted tensor.
void expect_close(const Weights& actual, const Weights& wanted, double tolerance = 1e-5);

// --- runs on a grid
struct RunSpec {
  int pipe = 1;
  int data = 1;
  std::int64_t micro = 1;  // rows of a micro batch
  int gas = 4;             // micro batches per step and replica
  std::string optimizer = R"({"type": "SGD", "params": {"lr": 0.1}})";
  double clip = 0.0;
  std::string more = "{}";  // further members of the configuration

  int ranks() const { return pipe * data; }
};
engine::Config config_of(const RunSpec& run);
// Equal numbers of layers on each stage.
inline const std::string kUniform = R"({"pipeline": {"partition": "uniform"}})";

// Exceptions as text: "EndOfData: …", with the names of engine/errors.h and comm/error.h;
// "Error: …" for any other; "" when nothing was thrown.
std::string thrown_by(const std::function<void()>& call);

}  // namespace penstock::testing
