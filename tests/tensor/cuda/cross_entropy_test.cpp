// The softmax cross-entropy on an emulated device, against the CPU.
#include "tensor/cuda/cross_entropy.h"

#include "tensor/cpu/cross_entropy.h"
#include "tensor/error.h"
#include "tensor/ops/cross_entropy.h"
#include "tests/support/errors.h"
#include "tests/tensor/cuda/both.h"

namespace penstock::tensor {
namespace {

using penstock::testing::make;
using penstock::testing::message;

class CudaCrossEntropy : public OnBothDevices {
 protected:
  // All rows but each third, whose target is 6, to be ignored.
  Tensor targets(std::int64_t rows, std::int64_t classes, bool wide) {
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < rows; ++row) {
      ids.push_back(row % 3 == 2 ? 6 : row * row * 7 % classes);
    }
    if (wide) return make(cpu(), {rows}, ids);
    return make(cpu(), {rows}, std::vector<std::int32_t>(ids.begin(), ids.end()));
  }

  void check(std::int64_t rows, std::int64_t classes, DType dtype) {
    const std::string text = std::string(name_of(dtype)) + ", " + std::to_string(classes);
    const DType sums = compute_dtype(dtype);
    const Tensor logits = numbers({rows, classes}, dtype, -8, 8);
    const Tensor target = targets(rows, classes, classes % 2 == 0);
    const Tensor log_sum = Tensor::empty(cpu(), {rows}, sums),
                 loss = Tensor::empty(cpu(), {}, sums);
    const Tensor count = Tensor::empty(cpu(), {}, DType::kF64);
    const Tensor grad = numbers({}, sums, 2, 3),
                 d_logits = Tensor::empty(cpu(), logits.shape(), dtype);
    cpu::softmax_cross_entropy(cpu(), logits, target, 6, log_sum, loss, count);
    cpu::softmax_cross_entropy_grad(cpu(), logits, target, 0, 6, log_sum, grad, count, d_logits);

    const Tensor on_logits = to_device(logits), on_target = to_device(target);
    const Tensor on_sum = like(log_sum), on_loss = like(loss), on_count = like(count);
    cuda::softmax_cross_entropy(device(), on_logits, on_target, 6, on_sum, on_loss, on_count);
    expect_near(on_sum, log_sum, 1e-6, text + ": log_sum");
    expect_near(on_loss, loss, 1e-6, text + ": loss");
    expect_near(on_count, count, 0, text + ": count");
    cuda::softmax_cross_entropy_grad(device(), on_logits, on_target, 0, 6, on_sum, to_device(grad),
                                     on_count, on_logits);
    expect_near(on_logits, d_logits, tolerance_of(dtype), text + ": gradient",
                3.0 / static_cast<double>(rows) / 10);
  }
};

TEST_F(CudaCrossEntropy, EqualsTheCpu) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t classes : {7, 8, 64, 301, 5000}) check(20, classes, dtype);
    check(700, 16, dtype);
  }
}

TEST_F(CudaCrossEntropy, PartsOfTheClassesJoinToTheWhole) {
  for (const DType dtype : kFloating) {
    constexpr std::int64_t kRows = 30;
    const Tensor target = targets(kRows, 50, true);
    const Tensor all = Tensor::empty(cpu(), {2, 2 * kRows}, DType::kF64);
    const Tensor on_all = Tensor::empty(device(), {2, 2 * kRows}, DType::kF64);
    for (int part = 0; part < 2; ++part) {
      const Tensor logits = numbers({kRows, 25}, dtype, -4, 4, static_cast<std::uint64_t>(part));
      const IndexPart classes{part * 25, 50};
      cpu::class_sums(cpu(), logits, target, classes, 6, all.rows(part, part + 1));
      cuda::class_sums(device(), to_device(logits), to_device(target), classes, 6,
                       on_all.rows(part, part + 1));
    }
    expect_near(on_all, all, 1e-6, "sums");
    const DType sums = compute_dtype(dtype);
    const Tensor log_sum = Tensor::empty(cpu(), {kRows}, sums),
                 loss = Tensor::empty(cpu(), {}, sums);
    const Tensor count = Tensor::empty(cpu(), {}, DType::kF64);
    const Tensor on_sum = like(log_sum), on_loss = like(loss), on_count = like(count);
    cpu::join_class_sums(cpu(), all, target, 6, log_sum, loss, count);
    cuda::join_class_sums(device(), on_all, to_device(target), 6, on_sum, on_loss, on_count);
    expect_near(on_sum, log_sum, 1e-6, "joined");
    expect_near(on_loss, loss, 1e-6, "loss");
    expect_near(on_count, count, 0, "count");
  }
}

TEST_F(CudaCrossEntropy, ATargetOutOfRangeIsToldAtTheNextWait) {
  const Tensor logits = to_device(numbers({3, 8}, DType::kF32, -1, 1));
  const Tensor target = to_device(make(cpu(), {3}, std::vector<std::int64_t>{1, 8, -5}));
  const Tensor sums = Tensor::empty(device(), {3}, DType::kF32);
  const Tensor loss = Tensor::empty(device(), {}, DType::kF32);
  const Tensor count = Tensor::empty(device(), {}, DType::kF64);
  cuda::softmax_cross_entropy(device(), logits, target, kIgnoreIndex, sums, loss, count);
  EXPECT_EQ(message<InvalidArgument>([&] { to_cpu(loss); }),
            "[softmax_cross_entropy] expected targets in [0, 8) or -100 for a row to ignore, got 8 "
            "at position 1");
}

TEST_F(CudaCrossEntropy, ARowThatIsNoNumberMakesTheLossNone) {
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::vector<float> row(40, 1.0f);
    row[17] = static_cast<float>(odd);
    const Tensor logits = to_device(make(cpu(), {1, 40}, row));
    const Tensor target = to_device(make(cpu(), {1}, std::vector<std::int64_t>{3}));
    const Tensor sums = Tensor::empty(device(), {1}, DType::kF32);
    const Tensor loss = Tensor::empty(device(), {}, DType::kF32);
    const Tensor count = Tensor::empty(device(), {}, DType::kF64);
    cuda::softmax_cross_entropy(device(), logits, target, kIgnoreIndex, sums, loss, count);
    EXPECT_TRUE(std::isnan(to_cpu(loss).item()));
  }
}

}  // namespace
}  // namespace penstock::tensor
