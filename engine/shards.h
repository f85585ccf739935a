// Where what a rank has of a parameter, or of its optimizer state, lies in the logical tensor: for
// checkpoints, which know nothing of the grid.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "model/parameter.h"
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

// Reads a region of a logical tensor, wherever that comes from.
using ReadRegion =
    std::function<void(const checkpoint::Region& region, const tensor::Tensor& destination)>;
// Fills the elements.
void read_shard(const tensor::Context& context, const ReadRegion& read, const ShardData& to);
// The same from a checkpoint.
void read_shard(const tensor::Context& context, const checkpoint::Reader& reader,
                const std::string& name, const ShardData& to);

// Collective over a model group whose ranks have parts of a parameter: all of it, on the first
// rank; an undefined tensor on the others.
tensor::Tensor gather_shards(const tensor::Context& context, comm::Communicator& group,
                             const model::Parameter& parameter, const tensor::Tensor& own);

}  // namespace penstock::engine
