// Convolution on an emulated device, against the CPU.
#include "tensor/cuda/conv.h"

#include "tensor/cpu/conv.h"
#include "tests/tensor/cuda/both.h"

namespace penstock::tensor {
namespace {

class CudaConv : public OnBothDevices {
 protected:
  void check(const ConvShape& s, DType dtype, DType weights) {
    const std::string text(name_of(dtype));
    const Tensor x = numbers({s.images, s.channels, s.image.height, s.image.width}, dtype, -1, 1);
    const Tensor weight = numbers(
        {s.filters, s.channels, s.window.kernel.height, s.window.kernel.width}, dtype, -1, 1, 2);
    const Tensor bias = numbers({s.filters}, dtype, -1, 1, 3);
    const Shape out{s.images, s.filters, s.out.height, s.out.width};
    const Tensor d_y = numbers(out, dtype, -1, 1, 4), y = Tensor::empty(cpu(), out, dtype);
    const Tensor on_x = to_device(x), on_weight = to_device(weight), on_dy = to_device(d_y);
    const double tolerance = tolerance_of(dtype);
    for (const Tensor& start : {bias, Tensor()}) {
      const Tensor on_y = like(y);
      cpu::conv2d(cpu(), s, x, weight, start, y);
      cuda::conv2d(device(), s, on_x, on_weight, to_device(start), on_y);
      expect_near(on_y, y, tolerance, text + ": y");
    }
    for (const bool accumulate : {false, true}) {
      const Tensor d_x = numbers(x.shape(), dtype, -1, 1, 5), on_dx = to_device(d_x);
      cpu::conv2d_input(cpu(), s, d_y, weight, accumulate, d_x);
      cuda::conv2d_input(device(), s, on_dy, on_weight, accumulate, on_dx);
      expect_near(on_dx, d_x, tolerance, text + ": d_x");
      const Tensor d_weight = numbers(weight.shape(), weights, -1, 1, 6);
      const Tensor on_dweight = to_device(d_weight);
      cpu::conv2d_weight(cpu(), s, d_y, x, accumulate, d_weight);
      cuda::conv2d_weight(device(), s, on_dy, on_x, accumulate, on_dweight);
      expect_near(on_dweight, d_weight, tolerance_of(weights), text + ": d_weight", 3);
      const Tensor d_bias = numbers({s.filters}, weights, -1, 1, 7), on_dbias = to_device(d_bias);
      cpu::conv2d_bias(cpu(), s, d_y, accumulate, d_bias);
      cuda::conv2d_bias(device(), s, on_dy, accumulate, on_dbias);
      expect_near(on_dbias, d_bias, tolerance_of(weights), text + ": d_bias", 3);
    }
  }
};

TEST_F(CudaConv, EqualsTheCpu) {
  const ConvShape plain{3, 2, 5, {9, 8}, {{3, 3}, 1, 1}, {9, 8}};
  const ConvShape strided{2, 3, 4, {10, 7}, {{3, 2}, {2, 3}, {1, 0}}, {5, 2}};
  for (const DType dtype : kFloating) {
    check(plain, dtype, compute_dtype(dtype));
    check(strided, dtype, dtype);
  }
}

}  // namespace
}  // namespace penstock::tensor
