// "did you mean": the known word nearest to a misspelt one.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace penstock::engine {

// Number of single-character insertions, deletions and replacements between two words.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, the first of equals; empty if none is near enough to be meant
// (2 edits, or a third of the longer word's length if that is more; never over half of it).
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace penstock::engine
