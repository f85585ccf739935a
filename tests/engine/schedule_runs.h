// Training runs over schedules and stage maps, and how they compare with a run on one stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/fixtures.h"

namespace penstock::testing {

// A model with its data.
struct Subject {
  std::string name;
  std::function<model::Module()> module;
  std::function<std::unique_ptr<model::DataSource>()> data;  // endless enough for every run here
};
// Layers of linear_tanh(); with a rate, each followed by dropout.
Subject mlp(int layers, double dropout = 0.0);
// GPT-2 of eight blocks, width 8, with tied embeddings: twelve layers, and the tie spans the whole
// pipe.
Subject gpt12();

struct ScheduleRun {
  std::string schedule = "1f1b";  // pipeline.schedule
  int pipe = 1;
  int chunks = 1;
  std::string stage_map = {};  // as JSON, or empty
  int data = 1;
  int gas = 1;
  int steps = 2;
  engine::ScheduleFactory own = nullptr;
  int recompute = 0;  // pipeline.activation_checkpoint_interval

  int ranks() const { return pipe * data; }
  int stages() const;
  std::string text() const;  // for messages
  engine::Config config() const;
};

// A run of each schedule that trains a pipe of `pipe` ranks, with one to `chunks` chunks, as many
// as it takes, over `gas` micro batches; all but what the constraints of a schedule rule out.
std::vector<ScheduleRun> runs_of_all(int pipe, int chunks, int gas);

// What one rank saw, or all of them together.
struct ScheduleOutcome {
  Weights start, gradients, weights;  // before the first step, of it, and after the last
  std::vector<double> losses, norms;  // by step
  std::vector<double> micro_losses;   // of the first step, of the first replica
  int stages = 0;                     // that this rank owns; all together: of the model
  // By chunk of this rank: forward passes of the first step, and whether its weight gradients were
  // added in the order of the micro batches.
  std::vector<int> forwards;
  bool in_order = true;
};

// Trains with AdamW and clipping in force. Collective over the world, of run.ranks().
ScheduleOutcome train(comm::World& world, const Subject& subject, const ScheduleRun& run);
// On ranks that are threads; fails the test where ranks disagree on what they share, or a chunk did
// not run every micro batch once.
ScheduleOutcome train(const Subject& subject, const ScheduleRun& run);

// Fails the test unless `actual`, all ranks' or one's, equals a run of the same batches on one
// stage: bit for bit where weight gradients were added in the order of the micro batches, else up
// to what another order of additions may change.
void expect_equal_training(const ScheduleOutcome& actual, const ScheduleOutcome& one_stage);

}  // namespace penstock::testing
