// Operations as cases that run on a CUDA device and on the CPU and are compared. Nothing here needs
// a test framework or knows what stands for the device.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::testing {

// Evenly spread floating numbers in [low, high), or, with ids above 0, i64 numbers in [0, ids).
struct OpInput {
  tensor::Shape shape;
  double low = -1, high = 1;
  std::int64_t ids = 0;
};

// Makes outputs from inputs; the context's random state is the same at each call.
using OpFunction =
    std::function<std::vector<tensor::Tensor>(tensor::Context&, std::span<const tensor::Tensor>)>;

// An allowed error is a number of units of roundoff of a result's dtype, times |wanted| + the root
// mean square of all that is wanted. At 0 all bits are equal.
struct OpCase {
  std::string name;
  OpFunction function;
  std::vector<OpInput> inputs;
  std::size_t activations = 1;  // the first inputs; floating ones after them are weights
  double output = 2;
  double grad = 4;
  bool backward = true;
  bool half = true;    // in 16 bits too
  bool waits = false;  // the host reads something on the way
  bool fused = false;  // a device may round to the dtype of output 0 elsewhere than the CPU does
  // Where results are compared with exact ones:
  std::int64_t terms = 1;  // of the longest sum; f32 and f64 may err √terms times as much
  bool rounds = false;     // gradients of weights pass the inputs' dtype on the way
};

// The tables, one for each group of operations.
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> movement_cases();
std::vector<OpCase> reduction_cases();
std::vector<OpCase> lookup_cases();
std::vector<OpCase> layer_cases();
std::vector<OpCase> optim_cases();
// All of these.
std::vector<OpCase> all_cases();

// Operations of a GPT of a size. Those of GPT-2 are too large to be emulated.
struct ModelSizes {
  std::int64_t tokens = 1024, heads = 12, head = 64, classes = 50257;
  std::int64_t width() const { return heads * head; }
};
std::vector<OpCase> model_cases(const ModelSizes& sizes);

// How a case is run.
struct OpForm {
  tensor::DType elements = tensor::DType::kF32;      // of the floating inputs
  tensor::DType accumulators = tensor::DType::kF32;  // of the weights' gradients
  std::int64_t offset = 0;  // elements before each input in its storage: not aligned where odd
  bool split = false;       // backward in two passes, adding to what the weights' gradients hold
  bool exact = false;       // the same numbers, held and computed with in f64
  std::string to_string() const;
};

// All forms of a case: f64, f32 and, with accumulators of both kinds, 16 bits; aligned and not.
std::vector<OpForm> forms_of(const OpCase& op);

// What came out: outputs, then gradients of the floating inputs, in host memory.
struct OpResult {
  std::string name;  // "output 0", "gradient of input 2"
  tensor::Tensor tensor;
};

// Runs forward, and backward where the case has one. `queued` is called when all is queued on the
// device and nothing was read from it yet.
std::vector<OpResult> run_op(
    const OpCase& op, const OpForm& form, tensor::Context& device,
    const std::function<void()>& queued = [] {});

// What differs by more than is allowed; empty: nothing.
std::string compare_results(const OpCase& op, const std::vector<OpResult>& got,
                            const std::vector<OpResult>& wanted);
// The same against the results of the exact form, with two units more: both are rounded.
std::string compare_with_exact(const OpCase& op, const OpForm& form,
                               const std::vector<OpResult>& got,
                               const std::vector<OpResult>& exact);
// What differs in any bit.
std::string compare_bits(const std::vector<OpResult>& got, const std::vector<OpResult>& wanted);

}  // namespace penstock::testing
