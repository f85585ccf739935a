#include "model/partition.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <regex>

#include "model/module.h"
#include "model/name_patterns.h"
#include "tensor/error.h"

namespace penstock::model {

namespace {

std::string to_string(std::span<const std::int64_t> values) {
  std::string text = "[";
  for (const std::int64_t value : values) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(value);
  }
  return text + "]";
}

void check_counts(std::int64_t items, std::int64_t parts) {
  if (items < 0 || parts < 1) {
    throw tensor::InvalidArgument("[partition] expected items >= 0 and parts >= 1, got " +
                                  std::to_string(items) + " items and " + std::to_string(parts) +
                                  " parts");
  }
}

// prefix[i] = sum of the first i weights, as integers: scaled by one power of two, so that sums
// are exact, equal weights stay equal, and ties are ties.
std::vector<std::int64_t> prefix_sums(std::span<const double> weights) {
  double total = 0.0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight < 0.0) {
      throw tensor::InvalidArgument("[partition] expected finite weights >= 0, got " +
                                    std::to_string(weight));
    }
    total += weight;
  }
  if (!std::isfinite(total)) {
    throw tensor::InvalidArgument("[partition] the sum of the weights overflows a double");
  }
  const int shift = total > 0.0 ? 60 - std::ilogb(total) : 0;
  std::vector<std::int64_t> prefix{0};
  for (const double weight : weights) {
    prefix.push_back(prefix.back() + std::llrint(std::ldexp(weight, shift)));
  }
  return prefix;
}

// Which prefixes can be cut into k non-empty parts whose sums all lie in a range.
class ReachTable {
 public:
  ReachTable(std::span<const std::int64_t> prefix, std::int64_t parts)
      : prefix_(prefix), parts_(parts), width_(prefix.size()), cells_((parts + 1) * prefix.size()) {
    cells_[0] = 1;  // no item in no part
  }

  // Fills the table; true when all items can be cut so.
  bool fill(std::int64_t least, std::int64_t most) {
    for (std::int64_t part = 1; part <= parts_; ++part) fill_row(part, least, most);
    return row(parts_)[width_ - 1] != 0;
  }

  // The latest cuts, from a table that fill() said true for. Taking the latest choice at each cut
  // from the end gives the latest of all: the position-wise later of two valid sets of cuts is
  // valid too, since sums grow with their end and shrink with their begin.
  Bounds latest_cuts(std::int64_t least, std::int64_t most) const {
    Bounds bounds(static_cast<std::size_t>(parts_) + 1);
    std::size_t end = width_ - 1;
    for (std::int64_t part = parts_; part > 0; --part) {
      bounds[static_cast<std::size_t>(part)] = static_cast<std::int64_t>(end);
      std::size_t begin = end - 1;
      while (row(part - 1)[begin] == 0 || !within(begin, end, least, most)) --begin;
      end = begin;
    }
    return bounds;
  }

 private:
  std::uint8_t* row(std::int64_t part) { return &cells_[static_cast<std::size_t>(part) * width_]; }
  const std::uint8_t* row(std::int64_t part) const {
    return &cells_[static_cast<std::size_t>(part) * width_];
  }
  bool within(std::size_t begin, std::size_t end, std::int64_t least, std::int64_t most) const {
    const std::int64_t sum = prefix_[end] - prefix_[begin];
    return least <= sum && sum <= most;
  }

  // The begins that suit an end form a window [low, high) that moves right with the end; `inside`
  // counts the reachable ones in it.
  void fill_row(std::int64_t part, std::int64_t least, std::int64_t most) {
    const std::uint8_t* before = row(part - 1);
    std::uint8_t* now = row(part);
    std::size_t low = 0;
    std::size_t high = 0;
    std::int64_t inside = 0;
    now[0] = 0;
    for (std::size_t end = 1; end < width_; ++end) {
      while (high < end && prefix_[end] - prefix_[high] >= least) inside += before[high++];
      while (low < high && prefix_[end] - prefix_[low] > most) inside -= before[low++];
      now[end] = inside > 0;
    }
  }

  std::span<const std::int64_t> prefix_;
  std::int64_t parts_;
  std::size_t width_;
  std::vector<std::uint8_t> cells_;
};

std::vector<double> count_trainable(const Module& module, const NamePatterns& frozen) {
  std::vector<double> counts;
  for (std::int64_t i = 0; i < std::ssize(module.layers); ++i) {
    std::int64_t count = 0;
    if (!module.layers[static_cast<std::size_t>(i)].frozen) {
      const std::unique_ptr<Layer> layer = build_layer(module, i);
      for (const Parameter* parameter : layer->parameters()) {
        if (!parameter->trainable || frozen.matches(logical_name(module, i, parameter->name))) {
          continue;
        }
        count += parameter->shape.numel();
      }
    }
    counts.push_back(static_cast<double>(count));
  }
  return counts;
}

std::vector<double> match_types(const Module& module, const std::string& pattern) {
  std::regex regex;
  try {
    regex.assign(pattern, std::regex::ECMAScript | std::regex::icase);
  } catch (const std::regex_error& error) {
    throw tensor::InvalidArgument("[partition] \"type:" + pattern +
                                  "\" is not a regular expression: " + error.what());
  }
  std::vector<double> weights;
  for (const LayerSpec& spec : module.layers) {
    weights.push_back(std::regex_search(spec.type, regex) ? 1.0 : 0.0);
  }
  if (std::find(weights.begin(), weights.end(), 1.0) == weights.end()) {
    throw tensor::InvalidArgument("[partition] \"type:" + pattern + "\" matches no type of the " +
                                  std::to_string(weights.size()) + " layers");
  }
  return weights;
}

}  // namespace

Bounds partition_uniform(std::int64_t items, std::int64_t parts) {
  check_counts(items, parts);
  Bounds bounds{0};
  for (std::int64_t part = 0; part < parts; ++part) {
    bounds.push_back(bounds.back() + items / parts + (part < items % parts ? 1 : 0));
  }
  return bounds;
}

Bounds partition_balanced(std::span<const double> weights, std::int64_t parts) {
  const auto items = static_cast<std::int64_t>(weights.size());
  check_counts(items, parts);
  const std::vector<std::int64_t> prefix = prefix_sums(weights);
  if (items <= parts) return partition_uniform(items, parts);

  ReachTable table(prefix, parts);
  std::int64_t most = 0;  // the least bound that all sums can keep
  for (std::int64_t high = prefix.back(); most < high;) {
    const std::int64_t middle = std::midpoint(most, high);
    if (table.fill(0, middle)) {
      high = middle;
    } else {
      most = middle + 1;
    }
  }
  std::int64_t least = 0;  // the greatest bound that all sums can reach
  for (std::int64_t high = prefix.back() / parts; least < high;) {
    const std::int64_t middle = least + (high - least + 1) / 2;
    if (table.fill(middle, most)) {
      least = middle;
    } else {
      high = middle - 1;
    }
  }
  table.fill(least, most);
  return table.latest_cuts(least, most);
}

void check_bounds(std::span<const std::int64_t> bounds, std::int64_t items, std::int64_t parts) {
  check_counts(items, parts);
  const bool ascending =
      std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) == bounds.end();
  if (std::ssize(bounds) == parts + 1 && ascending && bounds.front() == 0 &&
      bounds.back() == items) {
    return;
  }
  throw tensor::InvalidArgument("[partition] expected " + std::to_string(parts + 1) +
                                " strictly ascending bounds from 0 to " + std::to_string(items) +
                                " (" + std::to_string(items) + " layers on " +
                                std::to_string(parts) + " stages), got " + to_string(bounds));
}

Bounds partition_module(const Module& module, std::int64_t parts, const std::string& method,
                        std::span<const std::string> frozen_patterns) {
  const std::int64_t items = std::ssize(module.layers);
  if (items < parts) {
    throw tensor::InvalidArgument("[partition] the model has " + std::to_string(items) +
                                  " layers, fewer than the " + std::to_string(parts) +
                                  " stages; use fewer stages");
  }
  std::string word = method.substr(0, method.find(':'));
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (word == "type" && word.size() < method.size()) {
    return partition_balanced(match_types(module, method.substr(word.size() + 1)), parts);
  }
  if (word.size() == method.size()) {
    if (word == "uniform") return partition_uniform(items, parts);
    if (word == "parameters" || word == "best") {
      return partition_balanced(count_trainable(module, NamePatterns(frozen_patterns)), parts);
    }
  }
  throw tensor::InvalidArgument(
      "[partition] expected method uniform, parameters, best or "
      "type:REGEX, got \"" +
      method + "\"");
}

}  // namespace penstock::model
