// What one rank holds: its place in the grid, its stages, its pipe buffers, the batch it works on.
// Internal to engine/: the handlers and the step protocol share it.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/grid.h"
#include "comm/world.h"
#include "engine/device.h"
#include "engine/edge_pieces.h"
#include "engine/eval.h"
#include "engine/gradients.h"
#include "engine/loss_table.h"
#include "engine/pass_graphs.h"
#include "engine/pipe_buffers.h"
#include "engine/update.h"
#include "model/context.h"
#include "model/data_source.h"
#include "model/module.h"
#include "model/stage.h"
#include "schedule/schedule.h"
#include "schedule/stage_map.h"

namespace penstock::engine {

// Which samples a micro batch has, by their places in the order of samples.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t rows = 0;

  std::vector<std::int64_t> ids() const {
    std::vector<std::int64_t> result(static_cast<std::size_t>(rows));
    std::iota(result.begin(), result.end(), first);
    return result;
  }
};

// One call that runs a stream, on this rank.
struct Batch {
  bool training = true;
  std::int64_t number = 0;                // counts the calls of this engine; in every message
  std::int64_t rows = 0;                  // of a micro batch from a source
  int micro_batches = 0;                  // of this replica
  std::vector<SampleRange> samples;       // by micro batch; known on all ranks
  std::int64_t total_samples = 0;         // over micro batches and replicas
  std::vector<model::MicroBatch> loaded;  // by micro batch; empty on ranks that load nothing
  std::vector<int> label_axes;            // that count samples, by label; none: the first of each
  std::vector<double> weights;            // by micro batch; where the last stage is
  double total_weight = 0.0;              // over micro batches and replicas; as weights
  // Where the last stage is as they come; on every rank once the stream is over.
  LossTable losses;
  EvalOptions eval;  // of an evaluation; in training the defaults, but for outputs
  // Where the last stage is: what was asked for.
  std::vector<std::vector<tensor::Tensor>> outputs;  // by micro batch
  std::vector<tensor::Tensor> mean_outputs, merged_outputs;
};

// What this rank has sent along the pipe.
struct Traffic {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;  // of their tensors
};

struct RankState {
  // Collective over the world.
  RankState(comm::World& rank_world, const comm::Grid& rank_grid, model::Module rank_module,
            schedule::StageMap stage_map, std::vector<std::int64_t> stage_bounds,
            const std::shared_ptr<tensor::Allocator>& memory, comm::Transport device_transport,
            comm::Links pipe_links)
      : world(rank_world),
        grid(rank_grid),
        pipe_rank(rank_grid.position(rank_world.rank()).pipe),
        transport(device_transport),
        progress(memory, rank_world),
        comms(rank_world, rank_grid, memory, device_transport, pipe_links),
        module(std::move(rank_module)),
        context(memory),
        host(tensor::make_cpu_allocator()),
        map(std::move(stage_map)),
        bounds(std::move(stage_bounds)) {}

  comm::World& world;
  comm::Grid grid;
  schedule::PipeRank pipe_rank;
  comm::Transport transport;  // of tensors of a device
  DeviceProgress progress;
  comm::GridComms comms;
  model::Module module;
  model::Context context;  // where the model computes
  // For tensors that come from the trainer, another rank's loading among them, or go there: apart,
  // as the memory of any data source is.
  tensor::Context host;
  tensor::DType weights = tensor::DType::kF32;        // of activations too
  schedule::StageMap map;                             // of training and evaluation
  std::vector<std::int64_t> bounds;                   // of all stages of the model, in layers
  std::vector<std::unique_ptr<model::Stage>> stages;  // by chunk
  std::vector<EdgePieces> pieces;                     // by chunk
  const schedule::Schedule* schedule = nullptr;       // borrowed: the one that runs
  PipeBuffers buffers;
  Traffic sent;
  // The most that a pass allocated for itself (note_workspace); none: it is not measured.
  std::optional<std::int64_t> workspace;
  Batch batch;
  std::unique_ptr<PassGraphs> graphs;  // null: every pass runs as ever
  std::unique_ptr<GradientReducer> gradients;
  std::unique_ptr<Updater> updater;      // null: this engine only evaluates
  std::vector<std::int64_t> sample_ids;  // scratch: of the micro batch that runs

  // The stages of this rank, by chunk.
  std::span<const schedule::StageId> stage_ids() const { return map.stages_of(pipe_rank); }
  bool owns_first_stage() const { return stage_ids().front().value == 0; }
  bool owns_last_stage() const { return stage_ids().back().value == map.num_stages() - 1; }
  // First and last stage: inputs and labels.
  bool needs_data() const { return owns_first_stage() || owns_last_stage(); }
  // One rank of a model group loads for all of it.
  bool loads_data() const { return needs_data() && context.model.rank == 0; }
  const EdgePieces& pieces_of(schedule::ChunkId chunk) const {
    return pieces[static_cast<std::size_t>(chunk.value)];
  }
  model::Stage& stage(schedule::ChunkId chunk) {
    return *stages[static_cast<std::size_t>(chunk.value)];
  }
};

}  // namespace penstock::engine
