// Split and Shard: how the ranks of a model group share a parameter (tensor parallelism).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace penstock::model {

// The model axis of the grid, as one rank sees it.
struct ModelAxis {
  int size = 1;
  int rank = 0;
  // Between the column- and row-parallel parts a rank has its own part of each sequence alone.
  bool sequence_parallel = false;
};

// What a layer declares about a parameter, for any size of the model axis. Along one axis, blocks
// lie side by side (such as queries, keys and values), each made of units that stay whole (such as
// heads); each rank has an equal number of units of every block.
struct Split {
  struct Block {
    std::int64_t units = 0;
    std::int64_t unit_size = 1;  // in elements along the axis
    bool operator==(const Block&) const = default;
  };
  // What to do with a number of units that the size of the axis does not divide.
  enum class Rest : std::uint8_t {
    kRefuse,     // InvalidArgument
    kUneven,     // the first ranks have one more; every rank must have some
    kReplicate,  // when instead the units divide the size: every rank has all, and works with one
  };
  // What each rank's gradient of a parameter is of which it has all.
  enum class Gradient : std::uint8_t {
    kWhole,              // all of it; the same bits on every rank
    kPartOfTheSequence,  // with sequence parallelism: the share of the tokens that the rank has
  };

  std::vector<Block> blocks = {};  // none: every rank has all
  int axis = 0;
  Rest rest = Rest::kRefuse;
  Gradient gradient = Gradient::kWhole;

  static Split whole(Gradient gradient) { return {.gradient = gradient}; }
  // One block of units of one element.
  static Split along(int axis, std::int64_t size, Rest rest = Rest::kRefuse) {
    return {.blocks = {{size, 1}}, .axis = axis, .rest = rest};
  }

  bool operator==(const Split&) const = default;
};

// The part that one rank has of a parameter.
struct Shard {
  // Along the axis: `count` indices, from `whole` on in the whole parameter, from `own` on in the
  // rank's tensor. In order of both; they fill the rank's tensor.
  struct Range {
    std::int64_t whole = 0, own = 0, count = 0;
    bool operator==(const Range&) const = default;
  };

  int axis = -1;  // -1: everything
  std::vector<Range> ranges;
  tensor::Shape shape;            // of the rank's tensor
  bool partial_gradient = false;  // the gradient is the sum over the model group

  // Every rank of the model group has the parameter; the model counts and stores that of rank 0.
  bool is_everything() const { return axis < 0; }
};

// How many of `total` units member `rank` of `size` has when the first ones have one more, and how
// many those before it have.
std::int64_t balanced_count(std::int64_t total, int size, int rank);
std::int64_t balanced_begin(std::int64_t total, int size, int rank);

// Throws InvalidArgument, naming the parameter, the dimension and the sizes, when the model axis
// cannot share it. A size of 1 gives everything.
Shard shard_of(const std::string& name, const tensor::Shape& shape, const Split& split,
               const ModelAxis& axis);

}  // namespace penstock::model
