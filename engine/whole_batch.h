// A batch that is given at once, for Engine::step and Engine::eval_step; other calls ask a source.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/output_merge.h"
#include "tensor/tensor.h"

namespace penstock::engine {

// How a tensor of the batch becomes one of every micro batch.
struct BatchCut {
  int axis = 0;            // it is cut along the axis that counts samples; -1: the last
  bool replicate = false;  // it is not cut: each micro batch gets all of it
};
constexpr BatchCut along(int axis) {
  return {.axis = axis};
}
inline constexpr BatchCut kReplicate = {.replicate = true};

// {x} is cut along the first axis; {x, along(1)}; {mask, kReplicate}.
struct BatchTensor {
  BatchTensor(tensor::Tensor whole, BatchCut how = {}) : tensor(std::move(whole)), cut(how) {}

  tensor::Tensor tensor;
  BatchCut cut;
};

// The batch of one replica. Every rank may give all of it, or only what its stages need. Where the
// samples do not divide evenly, the first micro batches have one more than the others. Tensors lie
// in host memory and are copied: they may be written again once the call has returned.
struct WholeBatch {
  std::vector<BatchTensor> inputs = {};  // read where the first stage is
  std::vector<BatchTensor> targets =
      {};  // what the loss calls labels; read where the last stage is
  // For Context::named_input; read where a stage has a layer that declares the name.
  std::map<std::string, BatchTensor> named = {};
};

struct StepOptions {
  bool outputs = false;                 // TrainResult::outputs are wanted; the same on all ranks
  std::vector<OutputMerge> merge = {};  // by output; by default concatenated along the first axis
  // Cleared when the call begins; then gets TrainResult::micro_losses. May be null.
  std::vector<double>* losses = nullptr;
};

}  // namespace penstock::engine
