#include "tensor/tensor.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/half.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {
namespace {

using penstock::testing::cpu_context;
using penstock::testing::make;
using penstock::testing::message;
using penstock::testing::meta_context;
using penstock::testing::values;

TEST(Shape, KnowsItsSizes) {
  const Shape shape{4, 3, 2};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape.rows(), 12);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape.dim(-1), 2);
  EXPECT_EQ(shape.dim(0), 4);
  EXPECT_EQ(shape.with_dim(-2, 5), (Shape{4, 5, 2}));
  EXPECT_EQ(shape.to_string(), "[4, 3, 2]");
  EXPECT_NE(shape, (Shape{4, 3}));
  EXPECT_NE(shape, (Shape{4, 3, 1}));
}

TEST(Shape, OfAScalarHasOneElement) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().rows(), 1);
  EXPECT_EQ(Shape().to_string(), "[]");
  EXPECT_EQ((Shape{3, 0}).numel(), 0);
  EXPECT_EQ((Shape{3, 0}).rows(), 0);
}

TEST(Shape, RefusesWhatCannotBe) {
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ(message<InvalidArgument>([] {
              Shape({1, 2, 3, 4, 5, 6, 7});
            }),
            "[shape] expected at most 6 dimensions, got 7");
  EXPECT_EQ(message<InvalidArgument>([] {
              Shape({2, -1});
            }),
            "[shape] expected dimensions of at least 0, got -1 at axis 1");
  EXPECT_EQ(message<InvalidArgument>([=] {
              Shape({big, big});
            }),
            "[shape] expected fewer than 2^63 elements, got the dimensions [1099511627776, "
            "1099511627776]");
  EXPECT_EQ((Shape{big, big, 0}).numel(), 0);
  EXPECT_EQ(message<InvalidArgument>([] { Shape({2}).dim(1); }),
            "[shape] axis 1 is outside of the shape [2]");
}

TEST(Tensor, StoresEveryDType) {
  Context context = cpu_context();
  const std::size_t sizes[] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<std::byte> bytes(6 * sizes[i]);
    for (std::size_t j = 0; j < bytes.size(); ++j) bytes[j] = static_cast<std::byte>(j % 2);
    const Tensor x = Tensor::from_bytes(context, {2, 3}, dtype, bytes);
    EXPECT_EQ(x.nbytes(), bytes.size());
    EXPECT_EQ(std::memcmp(x.raw(), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.raw()) % Allocator::kAlignment, 0u);
    EXPECT_EQ(x.to_string(), std::string(name_of(dtype)) + " [2, 3] on cpu");
  }
}

TEST(Tensor, ReadsItsOneElementAsDouble) {
  Context context = cpu_context();
  EXPECT_EQ(make<double>(context, {}, {-2.5}).item(), -2.5);
  EXPECT_EQ(make<float>(context, {1}, {-2.5f}).item(), -2.5);
  EXPECT_EQ(make<F16>(context, {1, 1}, {to_f16(-2.5f)}).item(), -2.5);
  EXPECT_EQ(make<BF16>(context, {}, {to_bf16(-2.5f)}).item(), -2.5);
  EXPECT_EQ(make<std::int64_t>(context, {}, {-3}).item(), -3);
  EXPECT_EQ(make<std::int32_t>(context, {}, {-3}).item(), -3);
  EXPECT_EQ(make<std::int16_t>(context, {}, {-3}).item(), -3);
  EXPECT_EQ(make<std::uint8_t>(context, {}, {250}).item(), 250);
  EXPECT_EQ(make<std::int8_t>(context, {}, {-3}).item(), -3);
  EXPECT_EQ(cast(context, make<std::int8_t>(context, {}, {-3}), DType::kBool).item(), 1);
  EXPECT_EQ(message<InvalidArgument>([&] {
              make<float>(context, {2}, {1, 2}).item();
            }),
            "[tensor] item() expected one element on the host, got f32 [2] on cpu");
}

TEST(Tensor, HandsOutElementsAsTheirOwnTypeAlone) {
  Context context = cpu_context();
  const Tensor x = make<float>(context, {2}, {1, 2});
  EXPECT_EQ(x.span<float>()[1], 2);
  EXPECT_EQ(message<InvalidArgument>([&] { x.data<double>(); }),
            "[tensor] data expected f32, the tensor's dtype, got a request for f64");
}

TEST(Tensor, ViewsShareElements) {
  Context context = cpu_context();
  const Tensor x = make<std::int32_t>(context, {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor middle = x.rows(1, 3);
  EXPECT_EQ(values<std::int32_t>(middle), (std::vector<std::int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(middle.byte_offset(), 8u);
  EXPECT_EQ(values<std::int32_t>(middle.rows(1, 2)), (std::vector<std::int32_t>{4, 5}));
  middle.view({4}).data<std::int32_t>()[0] = 20;
  EXPECT_EQ(x.data<std::int32_t>()[2], 20);
  EXPECT_EQ(message<InvalidArgument>([&] { x.rows(3, 5); }),
            "[tensor] rows [3, 5) are outside of the shape [4, 2]");
  EXPECT_EQ(message<InvalidArgument>([&] { x.view({3}); }),
            "[tensor] view expected 8 elements as in [4, 2], got [3]");
  EXPECT_EQ(message<InvalidArgument>([&] { Tensor(x.storage(), 4, {8}, DType::kI32); }),
            "[tensor] expected a view inside of a storage of 32 bytes, got 32 bytes at offset 4");
}

TEST(Tensor, IsExclusiveWhileNobodyElseLooksAndItWasNotSent) {
  Context context = cpu_context();
  Tensor x = Tensor::zeros(context, {4}, DType::kF32);
  EXPECT_TRUE(x.exclusive());
  {
    const Tensor view = x.rows(0, 1);
    EXPECT_FALSE(x.exclusive());
  }
  EXPECT_TRUE(x.exclusive());
  x.storage()->seal();
  EXPECT_FALSE(x.exclusive());
}

TEST(Tensor, RefusesBytesThatDoNotFit) {
  Context context = cpu_context();
  EXPECT_EQ(message<InvalidArgument>([&] {
              make<float>(context, {3}, {1, 2});
            }),
            "[tensor] expected 12 bytes for f32 [3], got 8");
  const std::int64_t many = std::int64_t{1} << 61;
  EXPECT_EQ(message<InvalidArgument>([&] { Tensor::empty(context, {many}, DType::kF32); }),
            "[tensor] expected fewer than 2^63 bytes, got the shape [2305843009213693952] of f32");
}

TEST(Tensor, OnTheMetaDeviceHasNoElements) {
  Context meta = meta_context();
  const Tensor x = Tensor::zeros(meta, {1 << 20, 1 << 20}, DType::kF64);
  EXPECT_TRUE(x.is_meta());
  EXPECT_EQ(x.raw(), nullptr);
  EXPECT_EQ(meta.allocator->counters()->live_bytes(), std::int64_t{1} << 43);
  EXPECT_EQ(x.rows(1, 3).shape(), (Shape{2, 1 << 20}));
  EXPECT_EQ(message<InvalidArgument>([&] { x.rows(0, 1).view({1 << 20}).rows(0, 1).item(); }),
            "[tensor] item() expected one element on the host, got f64 [1] on meta");
}

TEST(Tensor, MayBeUndefined) {
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().to_string(), "an undefined tensor");
}

}  // namespace
}  // namespace penstock::tensor
