// Stage: the layers [begin, end) of a module as one rank holds them, with weights and gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/module.h"

namespace penstock::model {

struct StageOptions {
  std::uint64_t seed = 1234;
  std::vector<std::string> frozen_patterns;  // regexes, searched in logical parameter names
  tensor::DType dtype = tensor::DType::kF32;
  ModelAxis model;  // of whose parameters this rank gets its part
};

// A weight that this stage uses; it is there once, whatever the number of its uses.
struct StageParameter {
  std::string name;  // logical: "<global layer>.<parameter>" or "tied_modules.<key>.<parameter>"
  Parameter* parameter = nullptr;
  Shard shard;                    // what this rank has of it: the shape of parameter->value
  std::string tie_key;            // empty when untied
  std::int64_t first_layer = 0;   // global index of the first layer of the model that uses it
  std::vector<std::size_t> uses;  // indices into slots(); empty when frozen; more than one if tied
  bool borrowed = false;  // an earlier stage of this rank holds it, and this one uses that memory
};

// The gradient accumulator of one use of one weight.
struct StageSlot {
  std::int64_t layer = 0;     // global layer index of the use
  std::size_t parameter = 0;  // into parameters()
};

// Weights lie in one allocation and gradients in another, cut into segments: untied first, of these
// at the end the ones that are partial over the model group; then tied, one per use. Every tensor
// starts at a multiple of 256 bytes; padding belongs to none. Within each segment the order is that
// of the layers and their parameters.
class Stage {
 public:
  // Builds the layers and gives them memory; draws the initial weights. Throws InvalidArgument for
  // ties whose uses differ, or a frozen pattern that matches no parameter of the whole model.
  // `earlier`: the stages that this rank has already, whose tied weights are shared.
  Stage(const Module& module, std::int64_t begin, std::int64_t end, const StageOptions& options,
        const tensor::Context& context, std::span<const std::unique_ptr<Stage>> earlier = {});

  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }

  // Runs the layers in order. The context's tape, mode, micro batch and sample ids are the
  // caller's; layer, slots and random key are set here. with_grads false: weights are constants.
  // What a layer throws names the layer: "layer 3 (Linear): ..."; errors of Penstock's own kinds
  // keep their type, others become tensor::Error with the original nested.
  std::vector<Tensor> forward(Context& context, std::span<const Tensor> inputs, bool with_grads);

  std::span<const StageParameter> parameters() const { return parameters_; }
  std::span<const StageSlot> slot_info() const { return slot_info_; }
  std::span<tensor::GradSlot> slots() { return slots_; }
  // All untied gradients as one flat tensor, in slot order (with padding); undefined when none.
  // What ReduceGrads reduces in one piece. Empty slots must be zeroed first (zero_empty_slots).
  Tensor untied_grads() const { return untied_grads_; }
  // Of these the end, whose sum over the model group is the gradient (Shard::partial_gradient);
  // undefined when none.
  Tensor partial_grads() const { return partial_grads_; }
  // Writes zeros into slots that nothing was added to, so that all may be reduced.
  void zero_empty_slots(const tensor::Context& context);
  // Marks every slot empty: the next gradient overwrites. Costs nothing.
  void clear_grads();

  // Whether the parameter is used by no earlier layer of the model than this stage's: the whole
  // model counts and stores it here. (Of a parameter that every rank of the model group has, that
  // of its rank 0.)
  bool owns(const StageParameter& parameter) const { return parameter.first_layer >= begin_; }

 private:
  struct Use {
    std::int64_t layer;
    std::string label;  // "layer 3 (Linear)"
    std::unique_ptr<Layer> object;
    TiedForward forward;
    std::size_t first_slot = 0, num_slots = 0;  // by Parameter::slot
    std::vector<std::string> named_inputs;
  };
  class Builder;

  std::int64_t begin_, end_;
  std::vector<Use> uses_;
  std::vector<StageParameter> parameters_;
  std::vector<StageSlot> slot_info_;
  std::vector<tensor::GradSlot> slots_;
  Tensor untied_grads_, partial_grads_;
  std::int64_t last_layer_;  // of the module
};

}  // namespace penstock::model
