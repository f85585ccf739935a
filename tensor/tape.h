// The tape: automatic differentiation by a list of the operations that a layer's forward ran.
//
// A node has two gradient functions. The input-gradient function gives the gradients of its
// activations; the weight-gradient function adds to the accumulators of its weights. Running both,
// node by node in reverse, is the full backward (B). Running all input functions first (I) and all
// weight functions later (W), in the same order, gives the same bits: a schedule may put W where
// the pipeline would idle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// The gradient accumulator of one use of one weight. Owned by the model; it outlives the tape.
struct GradSlot {
  Tensor grad;        // shape of the weight; a floating dtype, such as f32 beside a bf16 weight
  bool empty = true;  // nothing added since the last optimizer step: the next add overwrites
};

// Which of a node's functions needs a saved tensor; it is dropped as soon as that one has run.
enum class SavedFor : std::uint8_t { kInputGrad, kWeightGrad, kBoth };

// What a gradient function sees of its node. In the input-gradient function wants(i) is true for
// the activations that need a gradient; in the weight-gradient function for the weights that do,
// so one function may serve as both. For a node without a weight-gradient function the
// input-gradient function answers for its weights too.
class Backward {
 public:
  bool wants(int input) const;
  // Gradient of an output; undefined when none flowed there (at least one is defined).
  const Tensor& grad(int output = 0) const;
  // The i-th tensor given to Recorder::save.
  const Tensor& saved(int i) const;
  // The shape of an input that needs a gradient, and so of that gradient.
  const Shape& shape(int input) const;
  // Hands over the gradient of an input (shape of the input). The tape adds it up; the tensor may
  // share storage with grad().
  void set(int input, Tensor gradient);
  // For a weight: the accumulator itself, so that a kernel can add in one pass. The caller must
  // write all of it: grad = value when accumulate is false, grad += value when it is true.
  struct Target {
    Tensor grad;
    bool accumulate;
  };
  Target target(int input);
  // The dtype in which the gradient of an input is best given: the input's own; f32 for a weight of
  // 16 bits whose accumulator is f32. Of an input that needs none, that of grad().
  DType grad_dtype(int input) const;
  // Whether target(input) may be written now by a kernel that computes in dtype; else use set().
  bool has_target(int input, DType dtype) const;

 private:
  friend class Tape;
  std::int32_t value_of(int input) const;
  Backward(Tape& tape, Context& context, std::size_t node, bool weights)
      : tape_(tape), context_(context), node_(node), weights_(weights) {}
  Tape& tape_;
  Context& context_;
  std::size_t node_;
  bool weights_;
};

// A part of a chunk's forward that may run twice, on context.tape: it gives the same outputs each
// time, random numbers included.
using ForwardFn = std::function<std::vector<Tensor>(Context&, std::span<const Tensor> inputs)>;

// Small captures (two words) stay inside of the std::function and cost no allocation.
using GradFn = std::function<void(Context&, Backward&)>;

// Fills in the node that Tape::record opened; converts to false when nothing needs a gradient.
class Recorder {
 public:
  Recorder() = default;
  explicit operator bool() const { return tape_ != nullptr; }
  void save(const Tensor& tensor, SavedFor use = SavedFor::kInputGrad);
  // Saves a tensor that the gradient of one input alone needs, for the pass that computes it. When
  // that input needs no gradient an undefined tensor takes the place, so that the numbering of
  // Backward::saved stays and the memory is not held.
  void save_for(int input, const Tensor& tensor);
  void input_grad(GradFn function);
  void weight_grad(GradFn function);
  // Registers one function for both passes; it asks wants() what to compute.
  void both_grads(const GradFn& function);

 private:
  friend class Tape;
  explicit Recorder(Tape* tape) : tape_(tape) {}
  Tape* tape_ = nullptr;
};

// One micro batch's record on one chunk. Not thread-safe; belongs to one rank.
class Tape {
 public:
  Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // --- leaves
  // Registers an input of the chunk. The result is what the layers must use. Without needs_grad
  // the tensor stays unknown to the tape and take_input_grad gives an undefined tensor.
  Tensor input(const Tensor& tensor, bool needs_grad);
  // Registers a use of a weight. slot is null for a frozen one; else slot->grad has the weight's
  // shape (InvalidArgument otherwise), and memory by the time of the weight's gradient. The slot is
  // borrowed until reset().
  Tensor weight(const Tensor& value, GradSlot* slot);
  // True when a gradient will be computed for this tensor.
  bool needs_grad(const Tensor& tensor) const {
    return tensor.tape_ == this && tensor.generation_ == generation_;
  }

  // --- recording, by the operations (see record() below)
  Recorder record(const char* name, std::span<const Tensor* const> inputs,
                  std::span<Tensor* const> outputs);

  // Runs `forward` now, and remembers its inputs instead of what its operations would save. The
  // input-gradient pass runs it again, recorded on a tape of its own, which stays until the
  // weights' gradients are done. context.tape is this tape.
  std::vector<Tensor> recompute(Context& context, std::span<const Tensor> inputs,
                                ForwardFn forward);

  // --- backward
  // Gives the gradient of an output of the chunk (its shape and dtype). False, and nothing
  // happens, when the output needs none. A tensor that is an output twice is given twice: the
  // gradients add up.
  bool seed(const Tensor& output, Tensor gradient);
  void backward(Context& context);         // B
  void backward_input(Context& context);   // I
  void backward_weight(Context& context);  // W, after I
  // The gradient of the i-th input registered; undefined when it needs none or none flowed.
  Tensor take_input_grad(std::size_t i);

  // Forgets everything; keeps the capacity of its lists, so steady state allocates nothing here.
  void reset();
  // Remembers what the other tape does, sharing its tensors. A tape that gets back what was copied
  // from it knows the tensors again that it knew then; to any other, they are strangers.
  void copy_from(const Tape& other);
  std::size_t num_nodes() const { return nodes_.size(); }
  // Calls visit(tensor, is_gradient) for each tensor that the tape holds: those that operations
  // saved, weights among them, inputs of what is to run again, and gradients on their way. The same
  // tensor may come several times.
  template <class Visit>
  void for_each_tensor(const Visit& visit) const;
  // Names of the recorded operations, in order: for tests and messages.
  std::vector<const char*> node_names() const;

 private:
  friend class Backward;
  friend class Recorder;
  struct Value {
    Shape shape;
    DType dtype;
    GradSlot* slot;  // set for weights
    Tensor grad;
  };
  struct Saved {
    Tensor tensor;
    SavedFor use;
  };
  struct Node {
    const char* name;
    GradFn input_grad;
    GradFn weight_grad;
    std::uint32_t first_edge, num_edges;    // inputs, in edges_
    std::uint32_t first_value, num_values;  // outputs, in values_
    std::uint32_t first_saved, num_saved;
    bool has_activations, has_weights;  // among the inputs that need a gradient
    std::int32_t segment;               // into segments_; -1: an operation
  };
  struct Segment {  // what recompute() recorded
    ForwardFn forward;
    std::vector<Tensor> inputs;
    std::vector<std::int32_t> outputs;  // by output of forward: its value here, or -1
    std::unique_ptr<Tape> tape;         // from I to W
  };
  struct Deferred {  // a weight's gradient that an input function made during I
    std::size_t node;
    std::int32_t value;
    Tensor grad;
  };
  enum class Pass : std::uint8_t { kBoth, kInput, kWeight };

  void make_known(Tensor& tensor, GradSlot* slot);
  Node& add_node(const char* name, std::span<const Tensor* const> inputs);
  void run(Context& context, Pass pass);
  void run_node(Context& context, std::size_t index, Pass pass);
  bool any_output_grad(const Node& node) const;
  void require_activations(std::span<const Tensor> inputs) const;
  void run_segment(Context& context, const Node& node, Pass pass);
  void run_again(Context& context, const Node& node, Segment& segment, Pass pass);
  void drop(const Node& node, bool keep_for_weights);
  void accumulate(Context& context, std::int32_t value, Tensor gradient);
  void apply_deferred(Context& context, std::size_t node);
  [[noreturn]] void throw_gradient(const char* who, const Value& value, const Tensor& got) const;

  std::vector<Node> nodes_;
  std::vector<std::int32_t> edges_;
  std::vector<Value> values_;
  std::vector<Saved> saved_;
  std::vector<std::int32_t> inputs_;
  std::vector<Segment> segments_;
  std::vector<Deferred> deferred_;
  std::vector<std::pair<std::int32_t, Tensor>> more_seeds_;  // of values that have one already
  std::size_t next_deferred_ = 0;
  std::uint32_t generation_;       // tells this life of the tape from earlier ones
  std::uint32_t last_generation_;  // of all its lives
  Pass pass_ = Pass::kBoth;
  bool marks_only_ = false;  // finds out what needs a gradient, and remembers nothing else
};

template <class Visit>
void Tape::for_each_tensor(const Visit& visit) const {
  const auto give = [&visit](const Tensor& tensor, bool is_gradient) {
    if (tensor.defined()) visit(tensor, is_gradient);
  };
  for (const Saved& saved : saved_) give(saved.tensor, false);
  for (const Value& value : values_) give(value.grad, true);
  for (const Deferred& deferred : deferred_) give(deferred.grad, true);
  for (const auto& [value, gradient] : more_seeds_) give(gradient, true);
  for (const Segment& segment : segments_) {
    for (const Tensor& input : segment.inputs) give(input, false);
    if (segment.tape != nullptr) segment.tape->for_each_tensor(visit);
  }
}

// Opens a node on the context's tape, when it has one and any input needs a gradient; outputs
// become known to the tape. Operations call this after computing their outputs:
//
//   Tensor y = …;
//   if (Recorder node = record(context, "tanh", {&x}, {&y})) {
//     node.save(y);
//     node.input_grad([](Context& c, Backward& b) { b.set(0, tanh_grad(c, b.saved(0), b.grad()));
//     });
//   }
Recorder record(Context& context, const char* name, std::initializer_list<const Tensor*> inputs,
                std::initializer_list<Tensor*> outputs);

// Switches recording off in a scope, and back on at its end.
class NoRecord {
 public:
  explicit NoRecord(Context& context)
      : context_(context), tape_(std::exchange(context.tape, nullptr)) {}
  ~NoRecord() { context_.tape = tape_; }
  NoRecord(const NoRecord&) = delete;
  NoRecord& operator=(const NoRecord&) = delete;

 private:
  Context& context_;
  Tape* tape_;
};

}  // namespace penstock::tensor
