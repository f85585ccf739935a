// Attention on an emulated device, against the CPU.
#include "tensor/cuda/attention.h"

#include "tensor/cpu/attention.h"
#include "tensor/error.h"
#include "tests/tensor/cuda/both.h"

namespace penstock::tensor {
namespace {

struct Case {
  std::int64_t batch, tokens, head;
  AttentionShape shape;
  DType dtype;

  std::string text() const {
    return std::string(name_of(dtype)) + ", " + std::to_string(tokens) + " tokens, head " +
           std::to_string(head) + ", " + std::to_string(shape.heads) + "/" +
           std::to_string(shape.kv_heads) + (shape.causal ? ", causal" : "");
  }
};

class CudaAttention : public OnBothDevices {
 protected:
  void check(const Case& c) {
    const std::int64_t width = (c.shape.heads + 2 * c.shape.kv_heads) * c.head;
    const Tensor qkv = numbers({c.batch, c.tokens, width}, c.dtype, -2, 2);
    const Tensor d_out = numbers({c.batch, c.tokens, c.shape.heads * c.head}, c.dtype, -1, 1, 2);
    const Tensor out = Tensor::empty(cpu(), d_out.shape(), c.dtype);
    const Tensor log_sum =
        Tensor::empty(cpu(), {c.batch, c.shape.heads, c.tokens}, compute_dtype(c.dtype));
    const Tensor d_qkv = Tensor::empty(cpu(), qkv.shape(), c.dtype);
    cpu::attention(cpu(), c.shape, qkv, out, log_sum);
    cpu::attention_grad(cpu(), c.shape, d_out, qkv, out, log_sum, d_qkv);

    const Tensor device_qkv = to_device(qkv), device_out = like(out), device_sum = like(log_sum);
    const Tensor device_grad = like(d_qkv);
    cuda::attention(device(), c.shape, device_qkv, device_out, device_sum);
    cuda::attention_grad(device(), c.shape, to_device(d_out), device_qkv, device_out, device_sum,
                         device_grad);
    const double tolerance = tolerance_of(c.dtype);
    expect_near(device_sum, log_sum, std::min(tolerance, 1e-5), c.text() + ": log_sum");
    expect_near(device_out, out, tolerance, c.text() + ": out");
    expect_near(device_grad, d_qkv, 2 * tolerance, c.text() + ": d_qkv");
  }
};

TEST_F(CudaAttention, OfHalvesRunsOnTensorCores) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const bool causal : {true, false}) {
      check({1, 150, 64, {2, 1, causal}, dtype});
      check({2, 40, 128, {2, 2, causal}, dtype});
    }
    check({1, 70, 24, {4, 2, true}, dtype});
    check({1, 33, 80, {1, 1, true}, dtype});
  }
  EXPECT_GT(cuda_emulation::counters().launches["attend<BF16, 64>"] +
                cuda_emulation::counters().launches["attend<penstock::tensor::BF16, 64>"],
            0);
}

TEST_F(CudaAttention, OfOthersRunsPlainly) {
  for (const DType dtype : kFloating) {
    for (const bool causal : {true, false}) {
      check({2, 37, 5, {4, 2, causal}, dtype});
    }
  }
  check({1, 70, 64, {2, 1, true}, DType::kF32});
  check({1, 1, 3, {1, 1, true}, DType::kF64});
}

TEST_F(CudaAttention, ScoresOfAnySizeDoNotOverflow) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionShape shape{1, 1, true};
    const Tensor qkv = numbers({1, 40, 3 * 64}, dtype, -3e4, 3e4);
    const Tensor out = Tensor::empty(cpu(), {1, 40, 64}, dtype);
    const Tensor log_sum = Tensor::empty(cpu(), {1, 1, 40}, DType::kF32);
    const Tensor grad = Tensor::empty(cpu(), qkv.shape(), dtype);
    cpu::attention(cpu(), shape, qkv, out, log_sum);
    cpu::attention_grad(cpu(), shape, out, qkv, out, log_sum, grad);
    const Tensor device_qkv = to_device(qkv), device_out = like(out), device_sum = like(log_sum);
    const Tensor device_grad = like(grad);
    cuda::attention(device(), shape, device_qkv, device_out, device_sum);
    cuda::attention_grad(device(), shape, device_out, device_qkv, device_out, device_sum,
                         device_grad);
    expect_near(device_out, out, tolerance_of(dtype), "out");
    for (const double number : doubles(to_cpu(device_grad))) EXPECT_TRUE(std::isfinite(number));
  }
}

TEST_F(CudaAttention, AHeadTooLargeForABlockIsRefused) {
  const AttentionShape shape{1, 1, true};
  const Tensor qkv = to_device(numbers({1, 2, 3 * 1000}, DType::kF64, -1, 1));
  const Tensor out = Tensor::empty(device(), {1, 2, 1000}, DType::kF64);
  const Tensor log_sum = Tensor::empty(device(), {1, 1, 2}, DType::kF64);
  EXPECT_THROW(cuda::attention(device(), shape, qkv, out, log_sum), Unsupported);
}

}  // namespace
}  // namespace penstock::tensor
