// What a training step asks of the heap once it runs in its stride: a control block for each
// storage, and nothing else. (Blocks of elements come from the allocator's free lists.)
#include <cstddef>
#include <memory>

#include <gtest/gtest.h>

#include "tensor/ops/activation.h"
#include "tensor/ops/elementwise.h"
#include "tensor/ops/loss.h"
#include "tensor/ops/matmul.h"
#include "tensor/tape.h"
#include "tests/support/tensors.h"
#include "tests/tensor/heap_calls.h"

namespace penstock::tensor {
namespace {

using penstock::testing::uniform;

// Counts the blocks that storages ask for.
class CountingAllocator final : public Allocator {
 public:
  CountingAllocator() : Allocator(kCpuDevice) {}
  void* allocate(std::size_t bytes) override {
    ++blocks;
    return inner_->allocate(bytes);
  }
  void release(void* data, std::size_t bytes) noexcept override { inner_->release(data, bytes); }
  long blocks = 0;

 private:
  std::shared_ptr<Allocator> inner_ = make_cpu_allocator();
};

struct Trainer {
  Trainer() { context.tape = &tape; }

  void step(bool split) {
    Tensor h = tape.input(x, true);
    for (int i = 0; i < 4; ++i) {
      h = linear(context, h, tape.weight(weight, &weight_slot), tape.weight(bias, &bias_slot));
      h = tanh(context, add(context, h, tape.weight(bias, &bias_slot)));
    }
    tape.seed(mse(context, h, x), one);
    if (split) {
      tape.backward_input(context);
      tape.backward_weight(context);
    } else {
      tape.backward(context);
    }
    tape.take_input_grad(0);
    tape.reset();
  }

  std::shared_ptr<CountingAllocator> allocator = std::make_shared<CountingAllocator>();
  Context context{allocator};
  Tape tape;
  Tensor x = uniform(context, {4, 16}, DType::kF32, -1, 1, 1);
  Tensor weight = uniform(context, {16, 16}, DType::kF32, -1, 1, 2);
  Tensor bias = uniform(context, {16}, DType::kF32, -1, 1, 3);
  Tensor one = uniform(context, {}, DType::kF32, 1, 1);
  GradSlot weight_slot{Tensor::zeros(context, {16, 16}, DType::kF32)};
  GradSlot bias_slot{Tensor::zeros(context, {16}, DType::kF32)};
};

TEST(SteadyState, AsksTheHeapForStoragesAlone) {
  for (const bool split : {false, true}) {
    Trainer trainer;
    for (int i = 0; i < 3; ++i) trainer.step(split);
    const long heap_before = penstock::testing::heap_calls();
    const long blocks_before = trainer.allocator->blocks;
    trainer.step(split);
    const long blocks = trainer.allocator->blocks - blocks_before;
    EXPECT_GT(blocks, 16);  // the premise: steps do allocate
    EXPECT_EQ(penstock::testing::heap_calls() - heap_before, blocks);
  }
}

}  // namespace
}  // namespace penstock::tensor
