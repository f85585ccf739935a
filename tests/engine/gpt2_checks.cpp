#include "tests/engine/gpt2_checks.h"

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

namespace penstock::testing {

namespace {

using nlohmann::json;

constexpr double kMicroLossTolerance = 2e-6;
constexpr double kTolerance = 1e-5;
// The gradient of a key bias is zero in exact arithmetic; Adam amplifies what rounding leaves.
constexpr double kKeyBiasTolerance = 5e-4;

json expected() {
  std::ifstream in(std::string(PENSTOCK_GOLDEN_DIR) + "/gpt2_tiny/expected.json");
  return json::parse(in);
}

class Faults {
 public:
  void near(double actual, double wanted, double tolerance, const std::string& what) {
    if (std::abs(actual - wanted) <= tolerance) return;
    add(what + ": " + std::to_string(actual) + " instead of " + std::to_string(wanted) +
        ", off by " + std::to_string(std::abs(actual - wanted) / tolerance) + " tolerances");
  }
  void add(std::string text) { texts_.push_back(std::move(text)); }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::vector<std::string> texts_;
};

void compare_losses(const Gpt2Outcome& outcome, std::size_t step, const json& wanted,
                    double tolerance, Faults& faults) {
  faults.near(outcome.losses[step], wanted["mean_loss"], tolerance,
              "mean loss " + std::to_string(step));
  for (std::size_t m = 0; m < wanted["micro_losses"].size(); ++m) {
    faults.near(outcome.micro_losses[step][m], wanted["micro_losses"][m], tolerance,
                "micro loss " + std::to_string(m) + " of step " + std::to_string(step));
  }
  faults.near(outcome.norms[step], wanted["grad_norm"], kTolerance,
              "norm of step " + std::to_string(step));
}

// `element` of the whole parameter.
bool is_key_bias(const std::string& name, std::size_t element, std::size_t size) {
  return name.ends_with("c_attn.bias") && element >= size / 3 && element < 2 * size / 3;
}

// ‖actual − wanted‖ ≤ tolerance · ‖wanted‖, key biases apart.
// `elements` of the whole are there.
void compare_tensor(const std::string& name, const std::vector<float>& actual,
                    const std::vector<std::size_t>& elements, const std::vector<float>& whole,
                    bool trained, Faults& faults) {
  if (actual.size() != elements.size()) return faults.add(name + " has another size");
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double wanted = whole.at(elements[i]);
    if (trained && is_key_bias(name, elements[i], whole.size())) {
      faults.near(actual[i], wanted, kKeyBiasTolerance, name + " key part");
      continue;
    }
    error += (actual[i] - wanted) * (actual[i] - wanted);
    norm += wanted * wanted;
  }
  faults.near(std::sqrt(error), 0.0, kTolerance * std::sqrt(norm), name);
}

}  // namespace

std::vector<std::string> check_golden_gradients(comm::World& world, Gpt2Run grid) {
  grid.first_step = 0;
  grid.steps = 1;
  grid.optimizer = R"({"type": "SGD", "params": {"lr": 1e-30}})";
  grid.clip = 0.0;
  const Gpt2Outcome outcome = run_gpt2(world, grid);
  Faults faults;
  const json wanted = expected()["step0"];
  compare_losses(outcome, 0, wanted, kMicroLossTolerance, faults);
  const auto grads = golden_tensors("grads.safetensors");
  for (const auto& [name, values] : outcome.grads) {
    compare_tensor(name, values, outcome.elements.at(name), grads.at(name), /*trained=*/false,
                   faults);
  }
  return faults.take();
}

std::vector<std::string> check_golden_training(comm::World& world, const Gpt2Run& grid) {
  const Gpt2Outcome outcome = run_gpt2(world, grid);
  Faults faults;
  const json wanted = expected()["steps"];
  for (std::size_t step = 0; step < wanted.size(); ++step) {
    compare_losses(outcome, step, wanted[step], kTolerance, faults);
  }
  const auto weights = golden_tensors("after10.safetensors");
  for (const auto& [name, values] : outcome.weights) {
    compare_tensor(name, values, outcome.elements.at(name), weights.at(name), /*trained=*/true,
                   faults);
  }
  return faults.take();
}

std::vector<std::string> check_same_bits(const Gpt2Outcome& outcome, const Gpt2Outcome& wanted) {
  Faults faults;
  if (outcome.losses != wanted.losses) faults.add("losses differ");
  if (outcome.micro_losses != wanted.micro_losses) faults.add("micro losses differ");
  if (outcome.norms != wanted.norms) faults.add("norms differ");
  for (const auto& [name, values] : outcome.weights) {
    if (values != wanted.weights.at(name)) faults.add(name + " differs");
  }
  return faults.take();
}

}  // namespace penstock::testing
