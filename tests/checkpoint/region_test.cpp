#include "checkpoint/region.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/overlap.h"
#include "tensor/error.h"
#include "tests/checkpoint/support.h"

namespace penstock::checkpoint::testing {
namespace {

using tensor::InvalidArgument;
using tensor::Shape;

// The logical elements of a region, one by one from its definition.
std::vector<std::int64_t> elements_of(const Region& region, const Shape& shape) {
  std::int64_t inner = 1;
  for (int axis = region.axis + 1; axis < shape.rank(); ++axis) inner *= shape[axis];
  std::vector<std::int64_t> slice;
  for (std::int64_t element = 0; element < shape.numel(); ++element) {
    const std::int64_t index = region.axis < 0 ? 0 : element / inner % shape[region.axis];
    if (region.axis < 0 || (index >= region.axis_begin && index < region.axis_end)) {
      slice.push_back(element);
    }
  }
  return {slice.begin() + region.begin, slice.begin() + region.end};
}

std::vector<Region> regions_of(const Shape& shape) {
  std::vector<Region> regions{Region::whole(shape)};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    for (std::int64_t begin = 0; begin < shape[axis]; ++begin) {
      for (std::int64_t end = begin; end <= shape[axis]; ++end) {
        regions.push_back(Region::slice(shape, axis, begin, end));
      }
    }
  }
  for (std::size_t i = 0, count = regions.size(); i < count; ++i) {
    const std::int64_t n = regions[i].numel();
    regions.push_back(regions[i].elements(n / 3, n - n / 4));
    regions.push_back(regions[i].elements(n / 2, n / 2));
  }
  return regions;
}

TEST(Region, OverlapsAreThoseOfTheElementLists) {
  const Shape shape{3, 4, 2};
  const std::vector<Region> regions = regions_of(shape);
  ASSERT_GT(regions.size(), 50u);
  for (const Region& a : regions) {
    const std::vector<std::int64_t> in_a = elements_of(a, shape);
    for (const Region& b : regions) {
      const std::vector<std::int64_t> in_b = elements_of(b, shape);
      std::map<std::int64_t, std::int64_t> expected;  // position in a → position in b
      for (std::size_t i = 0; i < in_a.size(); ++i) {
        for (std::size_t j = 0; j < in_b.size(); ++j) {
          if (in_a[i] == in_b[j]) expected[static_cast<int>(i)] = static_cast<int>(j);
        }
      }
      std::map<std::int64_t, std::int64_t> found;
      for_each_overlap(a, b, shape, [&](std::int64_t i, std::int64_t j, std::int64_t count) {
        EXPECT_GT(count, 0);
        for (std::int64_t k = 0; k < count; ++k) EXPECT_TRUE(found.emplace(i + k, j + k).second);
      });
      ASSERT_EQ(found, expected) << a.to_string(shape) << " with " << b.to_string(shape);
    }
  }
}

TEST(Region, RunsAreAsLongAsTheyCanBe) {
  const Shape shape{100, 10};
  int runs = 0;
  const auto count = [&](std::int64_t, std::int64_t, std::int64_t) { ++runs; };
  for_each_overlap(Region::whole(shape), Region::slice(shape, 0, 10, 90), shape, count);
  EXPECT_EQ(runs, 1);
  for_each_overlap(Region::slice(shape, 1, 0, 10), Region::whole(shape), shape, count);
  EXPECT_EQ(runs, 2);
  for_each_overlap(Region::slice(shape, 1, 0, 5), Region::whole(shape), shape, count);
  EXPECT_EQ(runs, 102);
}

TEST(Region, ShardsAreEqualParts) {
  const Shape shape{2, 12};
  EXPECT_EQ(Region::shard(shape, 1, 2, 3), Region::slice(shape, 1, 8, 12));
  EXPECT_EQ(Region::shard(shape, 1, 2, 3).numel(), 8);
  EXPECT_THROW(Region::shard(shape, 1, 0, 5), InvalidArgument);
  EXPECT_THROW(Region::shard(shape, 1, 3, 3), InvalidArgument);
  EXPECT_THROW(Region::shard(shape, 2, 0, 1), InvalidArgument);
}

TEST(Region, RefusesWhatLiesOutside) {
  const Shape shape{2, 12};
  EXPECT_THROW(Region::slice(shape, 1, 4, 13), InvalidArgument);
  EXPECT_THROW(Region::slice(shape, 1, -1, 3), InvalidArgument);
  EXPECT_THROW(Region::slice(shape, 1, 4, 3), InvalidArgument);
  EXPECT_THROW(Region::whole(shape).elements(0, 25), InvalidArgument);
  EXPECT_THROW(Region::whole(shape).elements(5, 4), InvalidArgument);
  Region region = Region::whole(shape);
  EXPECT_NO_THROW(region.validate(shape));
  region.end = 25;
  EXPECT_THROW(region.validate(shape), InvalidArgument);
  EXPECT_THROW(Region::whole({30}).validate(shape), InvalidArgument);
}

TEST(Region, ASliceOfTheFullAxisIsTheWhole) {
  const Shape shape{2, 12};
  EXPECT_TRUE(Region::slice(shape, 1, 0, 12).is_whole(shape));
  EXPECT_TRUE(Region::whole(Shape{}).is_whole(Shape{}));
  EXPECT_FALSE(Region::slice(shape, 1, 0, 11).is_whole(shape));
  EXPECT_FALSE(Region::whole(shape).elements(0, 23).is_whole(shape));
}

TEST(Region, StoredShapeIsThatOfTheSliceOrFlat) {
  const Shape shape{2, 12};
  EXPECT_EQ(Region::slice(shape, 1, 3, 7).stored_shape(shape), (Shape{2, 4}));
  EXPECT_EQ(Region::slice(shape, 1, 3, 7).elements(1, 4).stored_shape(shape), Shape{3});
}

}  // namespace
}  // namespace penstock::checkpoint::testing
