// What one micro batch holds on one stage at each point of its life, found by running the stage
// once on the meta device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/passes.h"
#include "engine/pipe_memory.h"
#include "model/context.h"
#include "model/stage.h"

namespace penstock::engine {

// What goes into a stage; meta tensors.
struct StageFeed {
  std::vector<tensor::Tensor> inputs;       // of the stage before, or of the data source
  std::vector<std::uint8_t> needs_grad;     // of inputs; empty: none, as they are loaded
  std::vector<tensor::Shape> whole_inputs;  // as PipeBuffer::whole_inputs
  EdgePieces pieces;
  std::vector<tensor::Tensor> labels;  // of the last stage
  std::optional<ModelEnd> end;         // of the last stage
};

// Storages are numbered; the numbers of received, loaded, saved and sent ones, and those of
// gradients that come in, are the same for a full and for a split backward.
struct StageProfile {
  struct Held {
    int item;
    Holding holding;
  };
  // What a part of the pipe buffer holds, each storage once.
  using Part = std::vector<Held>;

  std::vector<std::int64_t> bytes;  // by item
  Part inputs, labels;              // before the forward
  Part outputs, tape;               // after it
  Part output_grads;                // before the backward
  Part input_grads;                 // after a full one
  Part split_input_grads;           // after its input part,
  Part kept_tape;                   // and until its weight part
  // Items by tensor that crosses an edge: all, and in gradients those of the marked ones.
  std::vector<int> input_items, output_items, output_grad_items;
  std::vector<int> input_grad_items, split_input_grad_items;
  // The most that a pass allocates beyond what is there before or after it.
  std::int64_t forward_workspace = 0;
  std::int64_t backward_workspace = 0;
  std::int64_t split_backward_workspace = 0;

  // What the next stage is fed with.
  std::vector<tensor::Tensor> outputs_sent;
  std::vector<std::uint8_t> output_needs_grad;
  std::vector<tensor::Shape> whole_outputs;  // their shapes
};

// Runs forward and, when the context is training, both forms of backward. Stage and context are on
// the meta device; context.sample_ids has the rows.
StageProfile profile_stage(model::Stage& stage, model::Context& context, const StageFeed& feed);

}  // namespace penstock::engine
