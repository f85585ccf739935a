// The norms on an emulated device, against the CPU.
#include "tensor/cuda/norm.h"

#include "tensor/cpu/norm.h"
#include "tests/tensor/cuda/both.h"

namespace penstock::tensor {
namespace {

class CudaNorm : public OnBothDevices {
 protected:
  void check(std::int64_t rows, std::int64_t cols, DType dtype, bool centred, DType weights) {
    const std::string text = std::string(name_of(dtype)) + " [" + std::to_string(rows) + ", " +
                             std::to_string(cols) + "]" + (centred ? ", centred" : "");
    const DType sums = compute_dtype(dtype);
    const Tensor x = numbers({rows, cols}, dtype, -1, 3);
    const Tensor dy = numbers({rows, cols}, dtype, -1, 1, 2);
    const Tensor gamma = numbers({cols}, dtype, 0.5, 2, 3);
    const auto maybe = [&](const Shape& shape, DType type) {
      return centred ? Tensor::empty(cpu(), shape, type) : Tensor();
    };
    const Tensor beta = centred ? numbers({cols}, dtype, -1, 1, 4) : Tensor();
    const Tensor mean = maybe({rows}, sums), scale = Tensor::empty(cpu(), {rows}, sums);
    const Tensor y = Tensor::empty(cpu(), x.shape(), dtype),
                 dx = Tensor::empty(cpu(), x.shape(), dtype);
    const Tensor dgamma = Tensor::empty(cpu(), {cols}, weights), dbeta = maybe({cols}, weights);
    cpu::layer_norm(cpu(), x, gamma, beta, 1e-5, y, mean, scale);
    cpu::layer_norm_grad(cpu(), dy, x, gamma, mean, scale, dx, dgamma, dbeta);

    const Tensor on_x = to_device(x), on_gamma = to_device(gamma), on_dx = to_device(dy);
    const Tensor on_mean = like(mean), on_scale = like(scale), on_y = like(y);
    const Tensor on_dgamma = like(dgamma), on_dbeta = like(dbeta);
    cuda::layer_norm(device(), on_x, on_gamma, to_device(beta), 1e-5, on_y, on_mean, on_scale);
    // dx is written over dy, as the operation does where nobody else holds it.
    cuda::layer_norm_grad(device(), on_dx, on_x, on_gamma, on_mean, on_scale, on_dx, on_dgamma,
                          on_dbeta);
    const double tolerance = tolerance_of(dtype);
    expect_near(on_y, y, tolerance, text + ": y");
    expect_near(on_scale, scale, 1e-5, text + ": scale");
    expect_near(on_dx, dx, tolerance, text + ": dx");
    const double sum_tolerance = tolerance_of(weights);
    expect_near(on_dgamma, dgamma, sum_tolerance, text + ": dgamma", std::sqrt(double(rows)));
    if (!centred) return;
    expect_near(on_mean, mean, 1e-5, text + ": mean");
    expect_near(on_dbeta, dbeta, sum_tolerance, text + ": dbeta", std::sqrt(double(rows)));
  }
};

TEST_F(CudaNorm, EqualsTheCpu) {
  for (const DType dtype : kFloating) {
    for (const bool centred : {true, false}) {
      for (const std::int64_t cols : {16, 96, 7, 600}) {
        check(9, cols, dtype, centred, compute_dtype(dtype));
      }
      check(800, 8, dtype, centred, dtype);  // more rows than blocks
    }
  }
  check(2, 20000, DType::kBF16, true, DType::kF32);  // too long to be held in registers
  check(0, 16, DType::kF32, true, DType::kF32);
}

}  // namespace
}  // namespace penstock::tensor
