// PassGraphs: the passes of a rank as CUDA graphs, so that the host queues a pass with one call
// instead of one for each kernel.
//
// A graph belongs to one chunk, one pipe buffer, one kind of pass, shapes and dtypes of a micro
// batch, and the addresses of weights and gradients (PassSignature). A pass runs as ever when it
// comes up for the first time, is captured the second time, and is replayed from then on. Graphs
// hold computing alone: messages, reductions, the optimizer, and what a handler does around a pass
// run as they do without.
//
// What makes a replay right:
// - It reads what lies where it lay. Inputs, labels and the gradients that came back are copied
//   into tensors of the set of graphs before each launch. What a pass allocates comes from memory
//   that is kept for graphs; all that is still in use when the pass ends (outputs, what the tape
//   saved, gradients of inputs) stays where it is while the graphs live.
// - Nothing that leaves the rank lies in that memory: outputs, losses and gradients of inputs are
//   copied out of it, so that a slow receiver never sees those of the next micro batch.
// - It takes no number from the host that changes. The gradient of the loss, into which the loss
//   scale and the weight of the micro batch go, is an input. Operations that draw random numbers,
//   copy from the host or wait for the device say so (tensor/cuda/capture.h), and such a pass runs
//   as ever, for good. Layers and losses that are not `replayable` are never captured, for nobody
//   can see what their code looks at.
// - A backward pass that is not replayed finds the tape that its forward would have left: the one
//   that was recorded when the forward was captured, which remembers the tensors that a replay
//   fills anew. So each pass of a micro batch is replayed, captured or run as ever by itself.
// - Whether a pass overwrites gradients or adds to them is part of its key.
//
// Evaluation, and forward passes whose outputs were asked for, run as ever.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/pass_signature.h"
#include "engine/passes.h"
#include "model/module.h"
#include "schedule/ids.h"
#include "tensor/cuda/graph.h"
#include "tensor/tape.h"

namespace penstock::engine {

// Why the layers [begin, end), and the loss if they are the last ones, cannot be captured: names
// the first that is not replayable. Empty: they can.
std::string obstacle_to_graphs(const model::Module& module, std::int64_t begin, std::int64_t end);

class PassGraphs {
 public:
  // Sets of graphs for one buffer of a chunk; micro batches of further shapes run as ever.
  static constexpr std::size_t kMostShapes = 4;
  // Backward passes of one set, which differ in kind and in the gradients that are still empty.
  static constexpr std::size_t kMostBackwards = 8;

  struct Place {
    schedule::ChunkId chunk;
    schedule::BufferId buffer;
    auto operator<=>(const Place&) const = default;
  };
  // Passes of training since the beginning.
  struct Use {
    std::int64_t captured = 0;
    std::int64_t replayed = 0;  // launches, that after the capture among them
    std::int64_t plain = 0;
  };

  // `obstacles`: by chunk, what obstacle_to_graphs() says. `tell` hears, once for each reason, why
  // a pass runs as ever.
  PassGraphs(std::shared_ptr<tensor::Allocator> memory, std::vector<std::string> obstacles,
             std::function<void(std::string)> tell);

  // What run_forward, run_backward and Tape::backward_weight do. The stage is that of the chunk.
  model::LossResult forward(Place place, model::Stage& stage, model::Context& context,
                            PipeBuffer& buffer, const ModelEnd* end);
  void backward(Place place, model::Stage& stage, model::Context& context, PipeBuffer& buffer,
                tensor::Tensor loss_grad, TapePass pass);
  void backward_weight(Place place, model::Stage& stage, model::Context& context,
                       PipeBuffer& buffer);

  const Use& use() const { return use_; }
  // Of all memory that graphs have.
  std::int64_t bytes() const { return tensor::cuda::graph_bytes(*memory_); }

 private:
  enum class Kind : std::uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };
  enum class Phase : std::uint8_t { kNew, kSeen, kCaptured, kPlain };
  struct Pass {
    Phase phase = Phase::kNew;
    std::unique_ptr<tensor::cuda::Graph> graph;
  };
  struct Backward : Pass {
    Kind kind = Kind::kBackward;
    std::vector<bool> empty_before, empty_after;  // empty_gradients()
    std::vector<tensor::Tensor> input_grads;
    tensor::Tape tape;  // what an input pass leaves for the weights
  };
  // The graphs of one signature. Tensors are those whose addresses are in the graphs.
  struct Set {
    PassSignature signature;
    Pass forward_pass;
    std::vector<tensor::Tensor> inputs, labels, outputs, output_grads;
    model::NamedTensors named;
    tensor::Tensor loss_grad;
    // What the forward leaves: shells and marks in the buffer, the tape, its result.
    std::vector<tensor::Tensor> input_shells, output_shells;
    std::vector<std::uint8_t> output_needs_grad;
    tensor::Tensor loss_shell;
    tensor::Tape tape;
    model::LossResult result;
    std::vector<std::unique_ptr<Backward>> backwards;
  };
  struct Slot {
    std::vector<std::unique_ptr<Set>> sets;
    // Of the micro batch whose forward was launched last: its graphs, and its input pass if that
    // was launched too.
    std::int32_t micro_batch = -1;
    Set* set = nullptr;
    Backward* input_pass = nullptr;
  };
  // What a captured pass gets copied to its own tensors.
  struct Given {
    std::vector<tensor::Tensor> inputs, labels, output_grads;
    const model::NamedTensors* named = nullptr;
    tensor::Tensor loss_grad;
  };

  std::string obstacle(Place place, const model::Context& context, const PipeBuffer& buffer) const;
  Set* set_of(Slot& slot, PassSignature signature);
  Backward* backward_of(Set& set, Place place, Kind kind, std::vector<bool> empty);
  Set* current(Slot& slot, const PipeBuffer& buffer) const;
  // Runs it as ever: watched if it is new, so that its phase is known afterwards.
  void run_plainly(Pass* pass, Place place, Kind kind, model::Context& context,
                   const std::function<void()>& work);
  void capture_pass(Pass& pass, model::Context& context, const std::function<void()>& work);
  void launch(Pass& pass);
  void say(Place place, Kind kind, const std::string& reason);

  void capture_forward(Set& set, model::Stage& stage, model::Context& context, PipeBuffer& buffer,
                       const ModelEnd* end);
  model::LossResult replay_forward(Set& set, model::Context& context, PipeBuffer& buffer,
                                   const Given& given);
  void capture_backward(Set& set, Backward& pass, model::Stage& stage, model::Context& context,
                        PipeBuffer& buffer, TapePass function);
  void replay_backward(Set& set, Backward& pass, model::Stage& stage, model::Context& context,
                       PipeBuffer& buffer, const Given& given);

  tensor::Tensor copy_of(model::Context& context, const tensor::Tensor& tensor) const;
  std::vector<tensor::Tensor> copies_of(model::Context& context,
                                        const std::vector<tensor::Tensor>& tensors) const;
  // New elements that stay.
  std::vector<tensor::Tensor> kept_like(model::Context& context,
                                        const std::vector<tensor::Tensor>& tensors) const;
  // Counts for the graphs, and no longer for the rank, what of these lies in the graphs' memory.
  void keep(const tensor::Tensor& tensor) const;
  void keep(const tensor::Tape& tape) const;

  std::shared_ptr<tensor::Allocator> memory_;
  std::vector<std::string> obstacles_;
  std::function<void(std::string)> tell_;
  std::map<Place, Slot> slots_;
  std::set<std::string> told_;
  std::shared_ptr<tensor::MemoryCounters> counters_ = std::make_shared<tensor::MemoryCounters>();
  Use use_;
};

}  // namespace penstock::engine
