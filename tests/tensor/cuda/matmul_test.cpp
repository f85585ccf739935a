// Products on an emulated device, by an emulated cuBLASLt and by the kernel of our own, against the
// CPU.
#include "tensor/cuda/matmul.h"

#include "tensor/cpu/matmul.h"
#include "tests/tensor/cuda/both.h"

namespace penstock::tensor {
namespace {

class CudaMatmul : public OnBothDevices {
 protected:
  void check(std::int64_t batch, const GemmShape& s, DType dtype, DType out, bool with_bias,
             bool accumulate) {
    const std::string text = std::string(name_of(dtype)) + " to " + std::string(name_of(out)) +
                             " [" + std::to_string(s.m) + ", " + std::to_string(s.n) + ", " +
                             std::to_string(s.k) + "]" + (s.transpose_a ? " aT" : "") +
                             (s.transpose_b ? " bT" : "");
    const Tensor a = numbers({batch, s.m, s.k}, dtype, -1, 1);
    const Tensor b = numbers({batch, s.k, s.n}, dtype, -1, 1, 2);
    const Tensor bias = numbers({s.n}, dtype, -1, 1, 3);
    const Tensor c = numbers({batch, s.m, s.n}, out, -1, 1, 4), on_c = to_device(c);
    const Tensor on_bias = to_device(bias);
    cpu::matmul(cpu(), "matmul", batch, s, a, b, with_bias ? &bias : nullptr, accumulate, c);
    cuda::matmul(device(), "matmul", batch, s, to_device(a), to_device(b),
                 with_bias ? &on_bias : nullptr, accumulate, on_c);
    expect_near(on_c, c, tolerance_of(out), text);
  }
  void check_all() {
    for (const DType dtype : kFloating) {
      for (const bool a : {false, true}) {
        for (const bool b : {false, true}) {
          check(1, {17, 40, 9, a, b}, dtype, dtype, true, false);
          check(3, {8, 16, 32, a, b}, dtype, compute_dtype(dtype), false, true);
        }
      }
      check(2, {33, 65, 70}, dtype, dtype, false, true);
      check(1, {5, 4, 0}, dtype, dtype, true, false);
    }
  }
};

TEST_F(CudaMatmul, EqualsTheCpu) {
  check_all();
  EXPECT_GT(cuda_emulation::counters().products, 0);
}

TEST_F(CudaMatmul, EqualsTheCpuWhereCublasHasNoAlgorithm) {
  start_again({.refuse_products = true});
  check_all();
  EXPECT_EQ(cuda_emulation::counters().products, 0);
}

TEST_F(CudaMatmul, SumsUpAFactorOnItsWay) {
  for (const DType dtype : kFloating) {
    const GemmShape s{16, 24, 40, true, false};
    const Tensor a = numbers({s.k, s.m}, dtype, -1, 1), b = numbers({s.k, s.n}, dtype, -1, 1, 2);
    const Tensor c = Tensor::empty(cpu(), {s.m, s.n}, compute_dtype(dtype)), on_c = like(c);
    cpu::matmul(cpu(), "matmul", 1, s, a, b, nullptr, false, c);
    for (const auto what : {cuda::SumOf::kA, cuda::SumOf::kB}) {
      const Tensor sums =
          cuda::matmul_and_sum(device(), s, to_device(a), to_device(b), false, on_c, what);
      if (!sums.defined()) continue;  // cuBLASLt may have none
      expect_near(on_c, c, tolerance_of(c.dtype()), "product");
      const std::vector<double> factor = doubles(what == cuda::SumOf::kA ? a : b);
      const std::vector<double> got = doubles(to_cpu(sums));
      for (std::size_t i = 0; i < got.size(); ++i) {
        double wanted = 0;
        for (std::size_t k = 0; k < 40; ++k) wanted += factor[k * got.size() + i];
        EXPECT_NEAR(got[i], wanted, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace penstock::tensor
