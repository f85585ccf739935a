// How the ranks of a model group share out what crosses a stage edge: a tensor that all of them
// have goes over in flat pieces, one from each rank to its counterpart, and is whole again where it
// is used.
#pragma once

#include "engine/config.h"
#include "model/context.h"
#include "schedule/stage_map.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace penstock::engine {

// Which tensors of a stage are pieces while they are not in use: of those that a gradient comes
// back for, and of these gradients.
struct EdgePieces {
  bool inputs = false;
  bool outputs = false;
  bool input_grads = false;
  bool output_grads = false;
};

// None where both stages of an edge are on one rank, where there is one rank to a model group, or
// where activations are parts of sequences, which the ranks have none in common of.
EdgePieces edge_pieces(const Config& config, const schedule::StageMap& map,
                       schedule::StageId stage);

// The shape of a piece of such a tensor.
tensor::Shape piece_shape(const model::ModelAxis& axis, const tensor::Shape& whole);
// This rank's piece of a tensor that every rank of the model group has: of equal lengths, the last
// ones filled up with zeros. A copy.
tensor::Tensor own_piece(model::Context& context, const tensor::Tensor& whole);
// From the pieces of all ranks the tensor, bit for bit. Collective over the model group.
tensor::Tensor join_pieces(model::Context& context, const tensor::Tensor& piece,
                           const tensor::Shape& whole);

}  // namespace penstock::engine
