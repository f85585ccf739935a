#include "comm/rank_texts.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace penstock::comm {

std::string list_of(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string by_rank(std::span<const std::string> texts) {
  std::string result;
  for (std::size_t first = 0; first < texts.size(); ++first) {
    const std::string& text = texts[first];
    const auto before = texts.first(first);
    if (text.empty() || std::ranges::find(before, text) != before.end()) continue;
    std::vector<int> ranks;
    for (std::size_t rank = first; rank < texts.size(); ++rank) {
      if (texts[rank] == text) ranks.push_back(static_cast<int>(rank));
    }
    const bool all = texts.size() > 1 && ranks.size() == texts.size();
    result += (result.empty() ? "" : "; ") + (all ? "all ranks" : list_of(ranks)) + ": " + text;
  }
  return result;
}

}  // namespace penstock::comm
