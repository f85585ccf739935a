#include "tensor/ops/fill.h"

#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::check_gradients;
using penstock::testing::cpu_context;
using penstock::testing::message;
using penstock::testing::uniform;
using penstock::testing::values;

TEST(Fill, SetsEveryElementOfEveryDType) {
  Context context = cpu_context(/*threads=*/2);
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const std::int64_t n : {0, 1, 5, 70000}) {
      Tensor x = Tensor::empty(context, {n}, dtype);
      fill(context, x, 3);
      const Tensor numbers = cast(context, x, DType::kF64);
      const double expected = dtype == DType::kBool ? 1 : 3;
      EXPECT_EQ(values<double>(numbers), std::vector<double>(static_cast<std::size_t>(n), expected))
          << name_of(dtype);
    }
  }
}

TEST(Fill, RefusesWhatWasSent) {
  Context context = cpu_context();
  Tensor x = Tensor::zeros(context, {2}, DType::kI8);
  x.storage()->seal();
  EXPECT_EQ(message<InvalidArgument>([&] { fill(context, x, 1); }),
            "[fill] expected a tensor that may be written, got i8 [2] on cpu, which was given to "
            "send and is immutable since");
}

TEST(Copy, HasTheElementsInItsOwnStorage) {
  Context context = cpu_context();
  const Tensor x = uniform(context, {3, 4}, DType::kI16, -100, 100);
  const Tensor y = copy(context, x);
  EXPECT_EQ(values<std::int16_t>(y), values<std::int16_t>(x));
  EXPECT_NE(y.storage(), x.storage());
  check_gradients(
      [](Context& c, std::span<const Tensor> t) -> std::vector<Tensor> { return {copy(c, t[0])}; },
      {uniform(context, {3, 4}, DType::kF64, -1, 1)});
}

}  // namespace
}  // namespace penstock::tensor
