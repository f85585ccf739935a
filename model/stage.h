// Stage: the layers [begin, end) of a module as one rank holds them, with weights and gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/module.h"

namespace penstock::model {

struct StageOptions {
  std::uint64_t seed = 1234;
  std::vector<std::string> frozen_patterns;   // regexes, searched in logical parameter names
  tensor::DType dtype = tensor::DType::kF32;  // of weights
  std::optional<tensor::DType> grad_dtype;    // in which their gradients add up; none: dtype
  int shares = 1;   // into which weights and gradients are shared out: replicas under ZeRO
  ModelAxis model;  // of whose parameters this rank gets its part
  // Layers, from the stage's first on, of which only the inputs are kept until their backward,
  // which runs them again; LayerSpec::recompute overrides it. 0: none.
  std::int64_t recompute_interval = 0;
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

// Trained weights in one piece, and the gradients of their first uses in another where they lie
// alike: what is reduced, shared out and gathered at once. Every tensor starts at a multiple of 256
// bytes; padding belongs to none.
struct FlatWeights {
  struct Member {
    std::size_t parameter = 0;  // into parameters()
    std::int64_t begin = 0;     // its first element
  };
  std::vector<Member> members;     // in order of begin
  Tensor values;                   // in one dimension; StageOptions::shares divides its elements
  std::int64_t grads_begin = 0;    // among the stage's untied gradients, or the tied ones
  std::int64_t partial_begin = 0;  // from here on, the sum over the model group is the gradient
  bool tied = false;

  std::int64_t elements() const { return values.numel(); }
};

// Weights lie in one allocation, gradients in two: those of untied weights, of these at the end the
// ones that are partial over the model group; and those of tied weights, one per use.
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
  // All untied trained weights, if there are any; then each tied one that is not borrowed.
  std::span<const FlatWeights> flat_weights() const { return flat_weights_; }
  // Their gradients, with padding; undefined while they are released. What is reduced in one piece;
  // empty slots must be zeroed first (zero_empty_slots).
  Tensor flat_grads(const FlatWeights& weights) const;
  // Bytes of the untied, or the tied gradients while they are there, and their dtype.
  std::int64_t grad_bytes(bool tied) const {
    const GradBlock& grads = tied ? tied_block_ : untied_block_;
    return grads.elements * static_cast<std::int64_t>(tensor::size_of(grads.dtype));
  }
  tensor::DType grad_dtype() const { return untied_block_.dtype; }
  // Writes zeros into slots, of untied or of tied weights, that nothing was added to, so that all
  // may be reduced.
  void zero_empty_slots(const tensor::Context& context, bool tied);
  // Frees the memory of the untied, or the tied gradients, which are forgotten; and gives them
  // memory again, where they have none. From the beginning they have.
  void release_grads(bool tied);
  void provide_grads(const tensor::Context& context, bool tied);
  // Marks these slots empty: the next gradient overwrites. Costs nothing.
  void clear_grads(bool tied);
  void clear_grads() {
    clear_grads(/*tied=*/false);
    clear_grads(/*tied=*/true);
  }

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
  // Uses [begin, end) in a row; again: the backward runs them again.
  struct Part {
    std::size_t begin, end;
    bool again;
  };
  // Gradients of one allocation.
  struct GradBlock {
    struct Place {
      std::size_t slot;
      std::int64_t begin;
      tensor::Shape shape;
    };
    std::int64_t elements = 0;
    tensor::DType dtype = tensor::DType::kF32;
    std::vector<Place> slots = {};
    Tensor all = {};  // undefined while released
  };
  class Builder;
  GradBlock& block(bool tied) { return tied ? tied_block_ : untied_block_; }

  std::vector<Tensor> run(Context& context, std::span<const Tensor> inputs, const Part& part,
                          bool with_grads);
  std::vector<Tensor> run_again_later(Context& context, std::span<const Tensor> inputs,
                                      const Part& part);

  std::int64_t begin_, end_;
  std::vector<Use> uses_;
  std::vector<Part> parts_;  // all uses, in order
  std::vector<StageParameter> parameters_;
  std::vector<StageSlot> slot_info_;
  std::vector<tensor::GradSlot> slots_;
  std::vector<FlatWeights> flat_weights_;
  GradBlock untied_block_, tied_block_;
  std::int64_t last_layer_;  // of the module
};

}  // namespace penstock::model
