// What one rank holds: its place in the grid, its stages, its pipe buffers, the batch it works on.
// Internal to engine/: the handlers and the step protocol share it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/grid.h"
#include "comm/world.h"
#include "engine/gradients.h"
#include "engine/pipe_buffers.h"
#include "engine/update.h"
#include "model/context.h"
#include "model/data_source.h"
#include "model/module.h"
#include "model/stage.h"
#include "schedule/schedule.h"

namespace penstock::engine {

// One call of train_batch or eval_batch on this rank.
struct Batch {
  bool training = true;
  std::int64_t number = 0;                // counts the calls of this engine; in every message
  std::int64_t first_sample = 0;          // position of the batch in the order of samples
  std::int64_t rows = 0;                  // of a micro batch
  int micro_batches = 0;                  // of this replica
  std::vector<model::MicroBatch> loaded;  // by micro batch; empty on ranks that load nothing
  std::vector<double> weights;            // by micro batch; on the last stage
  // By micro batch. On the last stage as they come; on every rank once the stream is over.
  std::vector<double> losses;
  double mean_loss = 0.0;     // over micro batches and replicas, once it is over
  double total_weight = 0.0;  // over micro batches and replicas; on the last stage
};

struct RankState {
  RankState(comm::World& rank_world, const comm::Grid& rank_grid, model::Module rank_module,
            std::shared_ptr<tensor::Allocator> allocator)
      : world(rank_world),
        grid(rank_grid),
        comms(rank_world, rank_grid),
        module(std::move(rank_module)),
        context(std::move(allocator)) {}

  comm::World& world;
  comm::Grid grid;
  comm::GridComms comms;
  model::Module module;
  model::Context context;
  std::vector<std::int64_t> bounds;                   // of the stages, in layers
  std::vector<std::unique_ptr<model::Stage>> stages;  // by chunk
  const schedule::Schedule* schedule = nullptr;       // borrowed: the one that runs
  PipeBuffers buffers;
  Batch batch;
  std::unique_ptr<GradientReducer> gradients;
  std::unique_ptr<Updater> updater;      // null: this engine only evaluates
  std::vector<std::int64_t> sample_ids;  // scratch: of the micro batch that runs

  model::Stage& stage(schedule::ChunkId chunk) {
    return *stages[static_cast<std::size_t>(chunk.value)];
  }
};

}  // namespace penstock::engine
