// Runs of a small GPT-2 on grids with a model axis, whose parts are put together to be compared.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/fixtures.h"

namespace penstock::testing {

struct ModelGrid {
  int pipe = 1, data = 1, model = 1;
  bool sequence_parallel = false;

  int ranks() const { return pipe * data * model; }
  std::string text() const;
};

inline constexpr std::int64_t kGpt2Context = 8;
inline constexpr std::int64_t kGpt2Vocabulary = 13;

// Two blocks of width 16 with four heads: six layers.
model::Module small_gpt2(double dropout = 0.0);
// Its samples, again and again. `shift` makes other ones of them.
std::unique_ptr<model::DataSource> small_tokens(std::int64_t shift = 0);
extern const std::string kClippedAdamW;
// Eight samples per step, over all replicas, in micro batches of two. `more`: members of the
// section "pipeline".
engine::Config config_of(const ModelGrid& grid, const std::string& optimizer = kClippedAdamW,
                         const std::string& more = "{}");

// Values of whole parameters by name, as far as a rank has them.
using Parts = std::map<std::string, std::vector<std::pair<std::size_t, float>>>;
Parts parts_of(engine::Engine& engine, bool gradients = false);
// Fails the test where two ranks hold an element with different bits, or none holds it.
Weights joined(const std::vector<Parts>& by_rank);

struct Training {
  ModelGrid grid = {};
  double dropout = 0.0;
  int steps = 20;
  std::string optimizer = kClippedAdamW;
  std::string pipeline = "{}";
  bool other_data = false;  // each rank of a model group has other samples in its source
};
struct Trained {
  std::vector<double> losses, norms;
  Weights start, weights, gradients;  // whole; gradients of the last step
  bool operator==(const Trained&) const = default;
};
// Fails the test where ranks differ in what all of them must have.
Trained train(const Training& run);

}  // namespace penstock::testing
