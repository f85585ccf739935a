// Parameter: one weight of a layer: declared at once, given memory only on the stage that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/split.h"
#include "tensor/tensor.h"

namespace penstock::model {

// How a weight starts. Draws are keyed by (seed, global layer, parameter, element), on the host,
// so initial weights do not depend on the grid. All uses of a tied layer take the first use's key.
struct InitRule {
  enum class Kind : std::uint8_t { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double a = 0.0;  // the constant; the mean; the lower bound
  double b = 0.0;  // unused; the standard deviation; the upper bound

  static InitRule zeros() { return {}; }
  static InitRule ones() { return {Kind::kConstant, 1.0, 0.0}; }
  static InitRule normal(double mean, double stddev) { return {Kind::kNormal, mean, stddev}; }
  static InitRule uniform(double low, double high) { return {Kind::kUniform, low, high}; }
};

struct Parameter {
  std::string name;     // within its layer: "weight", "attn.c_attn.bias"
  tensor::Shape shape;  // of all of it, whatever part of it a rank has
  InitRule init;
  Split split;            // over the ranks of a model group; by default each has all of it
  bool trainable = true;  // false: frozen; has no gradient slot and no optimizer state
  std::size_t index = 0;  // among the parameters of the outermost layer
  std::size_t slot = 0;   // among its trainable ones; set by the Stage
  // This rank's part of it: undefined until a Stage gives it memory, then written in place only.
  tensor::Tensor value;
};

}  // namespace penstock::model
