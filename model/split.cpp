#include "model/split.h"

#include <algorithm>

#include "tensor/error.h"

namespace penstock::model {

namespace {

[[noreturn]] void refuse(const std::string& name, const tensor::Shape& shape, const Split& split,
                         const Split::Block& block, const ModelAxis& axis) {
  std::string what = std::to_string(block.units);
  if (block.unit_size != 1) what += " units of " + std::to_string(block.unit_size);
  const bool few = split.rest == Split::Rest::kUneven;
  throw tensor::InvalidArgument(
      "[tensor_parallel] " + name + " " + shape.to_string() + " has " + what + " along dimension " +
      std::to_string(split.axis) + ", which " + std::to_string(axis.size) +
      (few ? " ranks cannot share; expected one each at least"
           : " ranks cannot share equally; expected a multiple of tensor_parallel.size") +
      "; change the model or tensor_parallel.size");
}

bool divides(const Split::Block& block, int size) {
  return block.units % size == 0;
}

}  // namespace

std::int64_t balanced_count(std::int64_t total, int size, int rank) {
  return total / size + (rank < total % size ? 1 : 0);
}

std::int64_t balanced_begin(std::int64_t total, int size, int rank) {
  return total / size * rank + std::min<std::int64_t>(rank, total % size);
}

Shard shard_of(const std::string& name, const tensor::Shape& shape, const Split& split,
               const ModelAxis& axis) {
  Shard shard;
  shard.shape = shape;
  if (axis.size == 1) return shard;
  if (split.blocks.empty()) {
    shard.partial_gradient =
        axis.sequence_parallel && split.gradient == Split::Gradient::kPartOfTheSequence;
    return shard;
  }
  if (split.rest == Split::Rest::kReplicate) {
    const auto is_shared = [&](const Split::Block& block) {
      return !divides(block, axis.size) && axis.size % block.units == 0;
    };
    if (std::ranges::all_of(split.blocks, is_shared)) {
      shard.partial_gradient = true;
      return shard;
    }
  }
  std::int64_t begin = 0;
  std::int64_t own = 0;
  for (const Split::Block& block : split.blocks) {
    const bool uneven = split.rest == Split::Rest::kUneven && block.units >= axis.size;
    if (!uneven && !divides(block, axis.size)) refuse(name, shape, split, block, axis);
    const std::int64_t count = balanced_count(block.units, axis.size, axis.rank) * block.unit_size;
    const std::int64_t first = balanced_begin(block.units, axis.size, axis.rank) * block.unit_size;
    shard.ranges.push_back({begin + first, own, count});
    begin += block.units * block.unit_size;
    own += count;
  }
  if (split.axis >= shape.rank() || begin != shape.dim(split.axis)) {
    throw tensor::InvalidArgument("[tensor_parallel] " + name + " " + shape.to_string() +
                                  ": expected blocks that fill dimension " +
                                  std::to_string(split.axis) + ", got " + std::to_string(begin));
  }
  shard.axis = split.axis;
  shard.shape = shape.with_dim(split.axis, own);
  return shard;
}

}  // namespace penstock::model
