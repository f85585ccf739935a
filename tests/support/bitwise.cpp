#include "tests/support/bitwise.h"

#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "tensor/tape.h"
#include "tests/support/tensors.h"

namespace penstock::testing {

namespace {

using tensor::Context;
using tensor::GradSlot;
using tensor::Tensor;

// Operations poll between chunks, so polls on one thread show how work was cut.
struct CountPolls final : tensor::Progress {
  int count = 0;
  void poll() override { ++count; }
};

struct Result {
  std::vector<Tensor> tensors;  // the output, then each input's gradient
  int forward_polls = 0;
};

Result run(const std::function<Tensor(Context&, std::span<const Tensor>)>& function,
           const std::vector<Tensor>& inputs, std::size_t activations, int threads) {
  Context context = cpu_context(threads);
  tensor::Tape tape;
  CountPolls polls;
  context.tape = &tape;
  context.progress = &polls;
  std::vector<GradSlot> slots(inputs.size());
  std::vector<Tensor> leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool weight = i >= activations && is_floating(inputs[i].dtype());
    if (weight) slots[i].grad = Tensor::zeros(context, inputs[i].shape(), inputs[i].dtype());
    leaves.push_back(i < activations ? tape.input(inputs[i], true)
                                     : tape.weight(inputs[i], weight ? &slots[i] : nullptr));
  }
  Result result;
  const Tensor output = function(context, leaves);
  result.forward_polls = polls.count;
  result.tensors.push_back(output);
  {
    const tensor::NoRecord no_record(context);
    tape.seed(output, uniform(context, output.shape(), output.dtype(), -1, 1, 5));
  }
  tape.backward(context);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    result.tensors.push_back(i < activations ? tape.take_input_grad(i) : slots[i].grad);
  }
  return result;
}

}  // namespace

void check_same_bits(const std::function<Tensor(Context&, std::span<const Tensor>)>& function,
                     const std::vector<Tensor>& inputs, std::size_t activations) {
  const Result first = run(function, inputs, activations, 1);
  EXPECT_GT(first.forward_polls, 0) << "the work is one chunk: threads have nothing to share";
  for (const int threads : {1, 2, 3}) {
    const Result other = run(function, inputs, activations, threads);
    for (std::size_t i = 0; i < first.tensors.size(); ++i) {
      SCOPED_TRACE((i == 0 ? "output" : "gradient of input " + std::to_string(i - 1)) + ", " +
                   std::to_string(threads) + " threads");
      const Tensor& a = first.tensors[i];
      const Tensor& b = other.tensors[i];
      ASSERT_EQ(a.defined(), b.defined());
      if (!a.defined()) continue;
      EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.nbytes()), 0);
    }
  }
}

}  // namespace penstock::testing
