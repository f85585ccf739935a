// Runs of small transformers on grids with a model axis, and how they compare with one rank's.
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

inline constexpr std::int64_t kSmallContext = 8;
inline constexpr std::int64_t kSmallVocabulary = 13;

// Two blocks of width 16 with four heads: six layers.
model::Module small_gpt2(double dropout = 0.0);
// Three, in which two heads of keys serve four of queries.
model::Module small_llama(bool tied = true);
// Its samples, again and again. `shift` makes other ones of them.
std::unique_ptr<model::DataSource> small_tokens(std::int64_t shift = 0);
extern const std::string kClippedAdamW;
// Eight samples per step, over all replicas, in micro batches of two. `more`: further members of
// the configuration.
engine::Config config_of(const ModelGrid& grid, const std::string& optimizer = kClippedAdamW,
                         const std::string& more = "{}");

// Values of whole parameters by name, as far as a rank has them.
using Parts = std::map<std::string, std::vector<std::pair<std::size_t, float>>>;
Parts parts_of(engine::Engine& engine, bool gradients = false);
// Fails the test where two ranks hold an element with different bits, or none holds it.
Weights joined(const std::vector<Parts>& by_rank);

struct Training {
  ModelGrid grid = {};
  model::Module module = small_gpt2();
  int steps = 20;
  std::string optimizer = kClippedAdamW;
  std::string more = "{}";
  bool other_data = false;       // each rank of a model group has other samples in its source
  bool gradients = true;         // are kept; with ZeRO no rank has them whole
  bool check_each_step = false;  // with check_replicas
};

// What one rank saw and has.
struct RankTrained {
  std::vector<double> losses, norms;
  Parts start, weights, gradients;  // gradients of the first step
  bool operator==(const RankTrained&) const = default;
};
// Collective over the world, of run.grid.ranks().
RankTrained train(comm::World& world, const Training& run);

// What all ranks have together.
struct Trained {
  std::vector<double> losses, norms;
  Weights start, weights, gradients;  // whole
  bool operator==(const Trained&) const = default;
};
// On ranks that are threads; fails the test where they differ in what all of them must have.
Trained train(const Training& run);

// Fails the test unless the losses agree to 1e-5 of themselves, and the norms to 1e-3.
void expect_close_steps(const std::vector<double>& losses, const std::vector<double>& norms,
                        const Trained& wanted);
// Fails the test unless a rank's parts agree with the same elements of the whole, each by itself,
// as expect_close() has it.
void expect_close_parts(const Parts& parts, const Weights& whole);

}  // namespace penstock::testing
