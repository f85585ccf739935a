#include "engine/config_suggest.h"

#include <algorithm>
#include <numeric>

namespace penstock::engine {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Row i of the usual table: distances from a's first i characters to each prefix of b.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  constexpr std::size_t kLongest = 80;  // no key is longer; a longer word is no typing slip
  if (word.size() > kLongest) return {};
  std::string_view best;
  std::size_t best_distance = kLongest;
  for (const std::string_view candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t distance = edit_distance(word, candidate);
    const bool near = distance <= std::max<std::size_t>(2, longer / 3) && 2 * distance <= longer;
    if (near && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace penstock::engine
