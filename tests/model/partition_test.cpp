#include "model/partition.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace penstock::model {
namespace {

using Weights = std::vector<double>;

Weights sums(const Weights& weights, const Bounds& bounds) {
  Weights result;
  for (std::size_t part = 0; part + 1 < bounds.size(); ++part) {
    result.push_back(
        std::accumulate(weights.begin() + bounds[part], weights.begin() + bounds[part + 1], 0.0));
  }
  return result;
}

double largest(const Weights& weights, const Bounds& bounds) {
  const Weights parts = sums(weights, bounds);
  return *std::max_element(parts.begin(), parts.end());
}

void expect_no_empty_part(const Bounds& bounds) {
  EXPECT_EQ(std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()), bounds.end());
}

std::vector<nlohmann::json> golden(const std::string& function) {
  std::ifstream file(PENSTOCK_GOLDEN_DIR "/deepspeed_partition.jsonl");
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json row = nlohmann::json::parse(line);
    if (row.at("fn") == function) rows.push_back(std::move(row));
  }
  return rows;
}

TEST(PartitionUniform, EqualsDeepSpeed) {
  const auto rows = golden("partition_uniform");
  ASSERT_GT(rows.size(), 200u);
  for (const auto& row : rows) {
    EXPECT_EQ(partition_uniform(row.at("num_items"), row.at("num_parts")),
              row.at("parts").get<Bounds>())
        << row;
  }
}

TEST(PartitionBalanced, LargestSumIsTheOptimum) {
  const auto rows = golden("partition_balanced");
  ASSERT_GT(rows.size(), 200u);
  for (const auto& row : rows) {
    const auto weights = row.at("weights").get<Weights>();
    const Bounds bounds = partition_balanced(weights, row.at("num_parts"));
    ASSERT_EQ(std::ssize(bounds), row.at("num_parts").get<std::int64_t>() + 1) << row;
    EXPECT_EQ(largest(weights, bounds), row.at("optimal_max_sum").get<double>()) << row;
    if (std::ssize(weights) >= std::ssize(bounds) - 1) expect_no_empty_part(bounds);
  }
}

// Every way to cut, compared by (largest, -smallest, -cuts).
Bounds best_of_all(const Weights& weights, std::int64_t parts) {
  Bounds best;
  Bounds bounds(static_cast<std::size_t>(parts) + 1);
  bounds.back() = std::ssize(weights);
  const auto better = [&](const Bounds& a, const Bounds& b) {
    const Weights left = sums(weights, a);
    const Weights right = sums(weights, b);
    const auto [low_a, high_a] = std::minmax_element(left.begin(), left.end());
    const auto [low_b, high_b] = std::minmax_element(right.begin(), right.end());
    if (*high_a != *high_b) return *high_a < *high_b;
    if (*low_a != *low_b) return *low_a > *low_b;
    return a > b;
  };
  const std::function<void(std::size_t)> cut = [&](std::size_t part) {
    if (part + 1 == bounds.size()) {
      if (bounds[part - 1] < bounds[part] && (best.empty() || better(bounds, best))) best = bounds;
      return;
    }
    for (bounds[part] = bounds[part - 1] + 1; bounds[part] < bounds.back(); ++bounds[part]) {
      cut(part + 1);
    }
  };
  cut(1);
  return best;
}

TEST(PartitionBalanced, IsTheBestOfAllPartitions) {
  std::mt19937 draw(3);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t items = 1 + draw() % 9;
    const std::int64_t parts = 1 + draw() % static_cast<std::uint32_t>(items);
    const std::uint32_t range = 1 + draw() % 5;
    Weights weights;
    for (std::int64_t i = 0; i < items; ++i) weights.push_back(draw() % range);
    EXPECT_EQ(partition_balanced(weights, parts), best_of_all(weights, parts))
        << nlohmann::json(weights) << " in " << parts;
  }
}

TEST(PartitionBalanced, LeavesNoStageEmptyOrLopsided) {  // the lists of real users
  const auto expect = [](const Weights& weights, std::int64_t parts, double most) {
    const Bounds bounds = partition_balanced(weights, parts);
    expect_no_empty_part(bounds);
    EXPECT_EQ(largest(weights, bounds), most) << nlohmann::json(bounds);
    EXPECT_EQ(bounds, partition_balanced(weights, parts));
  };
  expect(Weights(5, 1.0), 4, 2);
  expect(Weights(38, 1.0), 8, 5);
  expect(Weights(42, 1.0), 16, 3);
  expect({100, 1, 1, 1, 1}, 2, 100);
  expect({1, 1, 1, 1, 100}, 4, 100);
  expect({0, 1, 0, 1, 1, 1, 1, 0, 0, 1, 0}, 4, 2);
  expect(Weights(5, 0.0), 3, 0);
  expect({3}, 1, 3);
  EXPECT_EQ(partition_balanced(Weights{100, 1, 1, 1, 1}, 2), (Bounds{0, 1, 5}));
  EXPECT_EQ(partition_balanced(Weights(5, 1.0), 4), (Bounds{0, 2, 3, 4, 5}));
  const Weights uniform = sums(Weights(38, 1.0), partition_uniform(38, 8));
  EXPECT_EQ(uniform, (Weights{5, 5, 5, 5, 5, 5, 4, 4}));
}

TEST(PartitionBalanced, EqualFractionsTieExactly) {
  EXPECT_EQ(partition_balanced(Weights(5, 0.1), 4), partition_balanced(Weights(5, 1.0), 4));
  EXPECT_EQ(partition_balanced(Weights(42, 1e-9), 16), partition_balanced(Weights(42, 1.0), 16));
  EXPECT_EQ(partition_balanced(Weights(42, 1e300), 16), partition_balanced(Weights(42, 1.0), 16));
}

TEST(PartitionBalanced, HoldsForLargeModels) {
  std::mt19937 draw(5);
  Weights weights;
  for (int i = 0; i < 3000; ++i) weights.push_back(1 + draw() % 1000);
  const Bounds bounds = partition_balanced(weights, 64);
  expect_no_empty_part(bounds);
  // Filling parts greedily up to one less than the largest sum must need more than 64 parts.
  const double limit = largest(weights, bounds) - 1;
  int parts = 1;
  double filled = 0;
  for (const double weight : weights) {
    if (filled + weight > limit) {
      ++parts;
      filled = 0;
    }
    filled += weight;
  }
  EXPECT_GT(parts, 64);
}

TEST(PartitionBalanced, FewerItemsThanPartsGivesEmptyOnesLast) {
  EXPECT_EQ(partition_balanced(Weights{5, 1}, 4), (Bounds{0, 1, 2, 2, 2}));
  EXPECT_EQ(partition_balanced(Weights{}, 2), (Bounds{0, 0, 0}));
}

TEST(PartitionBalanced, RefusesWeightsThatAreNotLoads) {
  EXPECT_THROW(partition_balanced(Weights{1, -1}, 1), tensor::InvalidArgument);
  EXPECT_THROW(partition_balanced(Weights{1, std::nan("")}, 1), tensor::InvalidArgument);
  EXPECT_THROW(partition_balanced(Weights{1, INFINITY}, 1), tensor::InvalidArgument);
  EXPECT_THROW(partition_balanced(Weights{1e308, 1e308}, 1), tensor::InvalidArgument);
  EXPECT_THROW(partition_balanced(Weights{1}, 0), tensor::InvalidArgument);
}

TEST(CheckBounds, AcceptsOnlyAscendingBoundsFromFirstToLast) {
  EXPECT_NO_THROW(check_bounds(Bounds{0, 3, 8}, 8, 2));
  for (const Bounds& wrong : {Bounds{0, 8}, Bounds{0, 3, 5, 8}, Bounds{0, 3, 3}, Bounds{0, 9, 8},
                              Bounds{0, 3, 7}, Bounds{1, 3, 8}, Bounds{0, 0, 8}, Bounds{}}) {
    EXPECT_THROW(check_bounds(wrong, 8, 2), tensor::InvalidArgument);
  }
  try {
    check_bounds(Bounds{0, 9, 8}, 8, 2);
    FAIL();
  } catch (const tensor::InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "[partition] expected 3 strictly ascending bounds from 0 to 8 (8 layers on 2 "
                 "stages), got [0, 9, 8]");
  }
}

}  // namespace
}  // namespace penstock::model
