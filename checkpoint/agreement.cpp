#include "checkpoint/agreement.h"

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <vector>

#include "checkpoint/error.h"
#include "comm/communicator.h"
#include "comm/world.h"

namespace penstock::checkpoint {
namespace {

std::string ranks_text(const std::vector<int>& ranks, int world_size) {
  if (world_size > 1 && static_cast<int>(ranks.size()) == world_size) return "all ranks";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

// "ranks 0, 2: text; rank 1: other text", leaving out ranks that have none.
std::string by_rank(const std::vector<std::string>& texts) {
  std::map<int, std::string> first_with;  // so that the order is that of ranks
  std::map<std::string, std::vector<int>> ranks;
  for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    if (text.empty()) continue;
    if (ranks[text].empty()) first_with.emplace(rank, text);
    ranks[text].push_back(rank);
  }
  std::string result;
  for (const auto& [rank, text] : first_with) {
    result += (result.empty() ? "" : "; ") +
              ranks_text(ranks[text], static_cast<int>(texts.size())) + ": " + text;
  }
  return result;
}

}  // namespace

void agree(comm::World& world, std::string_view where, const std::optional<std::string>& failure,
           std::string_view consequence) {
  std::array<std::int64_t, 1> fine{failure ? 0 : 1};
  world.all().all_reduce_wait(fine, comm::ReduceOp::kMin);
  if (fine[0] == 1) return;
  // An error without a text must not pass for none.
  const std::string text = !failure ? "" : failure->empty() ? "an error without a text" : *failure;
  throw FileError("[" + std::string(where) + "] " + by_rank(world.all().all_gather_text(text)) +
                  "; " + std::string(consequence));
}

void agree_same(comm::World& world, std::string_view where, std::uint64_t value,
                std::string_view shown) {
  const auto bits = std::bit_cast<std::int64_t>(value);
  std::array<std::int64_t, 2> least{bits, ~bits};  // the least ~x is the complement of the most x
  world.all().all_reduce_wait(least, comm::ReduceOp::kMin);
  if (least[0] == ~least[1]) return;
  throw FileError("[" + std::string(where) +
                  "] ranks do not see the same: " + by_rank(world.all().all_gather_text(shown)));
}

}  // namespace penstock::checkpoint
