// Where what a rank has of a parameter, or of its optimizer state, lies in the logical tensor: for
// checkpoints, which know nothing of the grid.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/split.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::engine {

// Some elements of a rank's part of a tensor: all of them, or a flat, row-major range.
struct ShardData {
  const tensor::Shape& whole;  // shape of the logical tensor
  const model::Shard& shard;
  tensor::Tensor data;     // cpu; in any shape
  std::int64_t begin = 0;  // number of its first element, among those of shard.shape
};

// The pieces that these elements are of the logical tensor `name`. They share the data's memory
// where it is one piece, else they are copies.
std::vector<checkpoint::Piece> pieces_of(const tensor::Context& context, const std::string& name,
                                         const ShardData& from);

// Fills the elements from a checkpoint.
void read_shard(const tensor::Context& context, const checkpoint::Reader& reader,
                const std::string& name, const ShardData& to);

}  // namespace penstock::engine
