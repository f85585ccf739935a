#include "checkpoint/agreement.h"

#include <array>
#include <bit>
#include <cstdint>

#include "checkpoint/error.h"
#include "comm/communicator.h"
#include "comm/world.h"

namespace penstock::checkpoint {

void agree(comm::World& world, std::string_view where, const std::optional<std::string>& failure,
           std::string_view consequence) {
  std::array<std::int64_t, 1> fine{failure ? 0 : 1};
  world.all().all_reduce_wait(fine, comm::ReduceOp::kMin);
  if (fine[0] == 1) return;
  // An error without a text must not pass for none.
  const std::string text = !failure ? "" : failure->empty() ? "an error without a text" : *failure;
  throw FileError("[" + std::string(where) + "] " +
                  comm::by_rank(world.all().all_gather_text(text)) + "; " +
                  std::string(consequence));
}

void agree_same(comm::World& world, std::string_view where, std::uint64_t value,
                std::string_view shown) {
  const auto bits = std::bit_cast<std::int64_t>(value);
  std::array<std::int64_t, 2> least{bits, ~bits};  // the least ~x is the complement of the most x
  world.all().all_reduce_wait(least, comm::ReduceOp::kMin);
  if (least[0] == ~least[1]) return;
  throw FileError("[" + std::string(where) + "] ranks do not see the same: " +
                  comm::by_rank(world.all().all_gather_text(shown)));
}

}  // namespace penstock::checkpoint
