// Partition: which layers go to which stage.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::model {

// Bounds: parts + 1 ascending positions, from 0 to the number of items; part p holds
// [bounds[p], bounds[p+1]).
using Bounds = std::vector<std::int64_t>;

// floor(items/parts) each, the remainder one each to the first parts; fewer items than parts: one
// each, then empty parts.
Bounds partition_uniform(std::int64_t items, std::int64_t parts);

// The contiguous partition with the least largest sum; among those the greatest smallest sum; then
// the later cuts. No part is empty when there are at least as many items as parts; with fewer it is
// partition_uniform. Weights are finite and not negative, else InvalidArgument. Exact for integers
// below 2^53. Takes O(items · parts) times about 120.
Bounds partition_balanced(std::span<const double> weights, std::int64_t parts);

// Checks bounds that a user gave: parts + 1 strictly ascending positions from 0 to items. Throws
// InvalidArgument that names the bounds and the rule.
void check_bounds(std::span<const std::int64_t> bounds, std::int64_t items, std::int64_t parts);

struct Module;

// By method: "uniform", "parameters" (trainable elements), "type:REGEX" (layers whose type matches,
// case-insensitive search), "best" (as "parameters"); the words in any case. Throws InvalidArgument
// for an unknown method, an invalid regex, a pattern that matches nothing, or fewer layers than
// parts. frozen_patterns are StageOptions::frozen_patterns: what they match is not trainable.
Bounds partition_module(const Module& module, std::int64_t parts, const std::string& method,
                        std::span<const std::string> frozen_patterns = {});

}  // namespace penstock::model
