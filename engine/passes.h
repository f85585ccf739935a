// What the passes do to a pipe buffer: the handlers run them on data, the planner on the meta
// device, so that both hold the same memory at the same points.
#pragma once

#include <vector>

#include "engine/edge_pieces.h"
#include "engine/pipe_buffers.h"
#include "model/context.h"
#include "model/loss.h"
#include "model/stage.h"

namespace penstock::engine {

// What the last stage of the model does with its outputs.
struct ModelEnd {
  const model::Loss* loss = nullptr;  // null: the one output is the loss
  bool compute_loss = true;
  std::vector<tensor::Tensor>* outputs = nullptr;  // not null: gets the outputs, in host memory
  const tensor::Context* host = nullptr;           // whose memory that is; set with outputs
};

// Runs a stage on the buffer's inputs, whose shells stay; `pieces` says which tensors are pieces in
// the buffer, before and afterwards. With an end (the last stage) the result
// is the loss, if it is wanted, whose shell stays; else the outputs stay in the buffer, and the
// result is empty. context.training says whether a tape is wanted. Throws what layers throw, and
// InvalidArgument for a loss that is not a scalar.
model::LossResult run_forward(model::Stage& stage, model::Context& context, PipeBuffer& buffer,
                              const ModelEnd* end, const EdgePieces& pieces = {});

// The tape's part of a backward pass: Tape::backward or Tape::backward_input.
using TapePass = void (tensor::Tape::*)(tensor::Context&);

// Of the loss whose shell the buffer has: what a backward pass begins with on the last stage.
tensor::Tensor loss_gradient(model::Context& context, const PipeBuffer& buffer, double scale);

// Runs it from the gradients of the buffer's outputs, or on the last stage from that of the loss,
// which is undefined elsewhere. Leaves the gradients of exactly those inputs that are marked in
// input_grads. Nothing runs when no output needs a gradient: then nothing upstream is trained.
void run_backward(model::Context& context, PipeBuffer& buffer, tensor::Tensor loss_grad,
                  TapePass pass, const EdgePieces& pieces = {});

}  // namespace penstock::engine
