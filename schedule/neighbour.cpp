#include "schedule/neighbour.h"

#include <algorithm>
#include <limits>
#include <ranges>
#include <string>
#include <utility>

namespace penstock::schedule {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

bool gives_gradient(const Action& action) {
  return action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
}

bool owned_by(const StageMap& map, std::int32_t stage, PipeRank rank) {
  return stage >= 0 && stage < map.num_stages() && map.rank_of(StageId{stage}) == rank;
}

}  // namespace

Row compact_row(const RowSource& source, PipeRank rank) {
  Row row = source.row(rank);
  std::erase_if(row, [](const Cell& cell) { return cell.idle(); });
  for (const Cell& cell : row) {
    for (const Action& action : cell.actions()) {
      if (!owned_by(source.map, action.stage.value, rank)) {
        throw ScheduleError("[lowering] rank " + std::to_string(rank.value) + " has " +
                            to_text(action) + ", but stage " + std::to_string(action.stage.value) +
                            " is not its own; expected stages as in the map " +
                            to_text(source.map));
      }
      if (action.micro_batch.value < 0 || action.micro_batch.value >= source.micro_batches) {
        throw ScheduleError("[lowering] rank " + std::to_string(rank.value) + " has " +
                            to_text(action) + "; expected micro batches 0 to " +
                            std::to_string(source.micro_batches - 1));
      }
    }
  }
  return row;
}

Neighbour::Neighbour(const RowSource& source, PipeRank self, const Row& own, PipeRank peer)
    : self_(self),
      peer_(peer),
      row_(compact_row(source, peer)),
      received_(static_cast<std::size_t>(source.map.num_chunks(self)),
                std::vector<std::int64_t>(static_cast<std::size_t>(source.micro_batches), kNever)) {
  read_peer(source);
  order_receives(source, own);
}

void Neighbour::read_peer(const RowSource& source) {
  const StageMap& map = source.map;
  for (std::size_t i = 0; i < row_.size(); ++i) {
    const auto cell = static_cast<std::int64_t>(i);
    for (const Action& action : row_[i].actions()) {
      const StageId before{action.stage.value - 1}, after{action.stage.value + 1};
      const bool mine_before = owned_by(map, before.value, self_);
      const bool mine_after = owned_by(map, after.value, self_);
      if (action.kind == ActionKind::kForward) {
        if (mine_after) activations_.push_back({map.chunk_of(after), action.micro_batch, cell});
        if (mine_before && !source.trains) {
          received(map.chunk_of(before), action.micro_batch) = cell;
        }
      } else if (gives_gradient(action)) {
        if (mine_before) gradients_.push_back({map.chunk_of(before), action.micro_batch, cell});
        if (mine_after) received(map.chunk_of(after), action.micro_batch) = cell;
      }
    }
  }
}

// So far it is known in which cell the peer needs each message.
void Neighbour::order_receives(const RowSource& source, const Row& own) {
  std::vector<std::int64_t*> sends;  // the cells of the last messages, in the order of the sends
  for (const Cell& cell : own) {
    for (const Action& action : cell.actions()) {
      const std::int32_t to = action.stage.value + (source.trains ? -1 : 1);
      const bool sends_last =
          source.trains ? gives_gradient(action) : action.kind == ActionKind::kForward;
      if (!sends_last || !owned_by(source.map, to, peer_)) continue;
      sends.push_back(&received(source.map.chunk_of(action.stage), action.micro_batch));
    }
  }
  // What is needed late, but was sent before something that is needed early, comes with that.
  std::int64_t earliest = kNever;
  for (std::int64_t* cell : std::views::reverse(sends))
    earliest = *cell = std::min(*cell, earliest);
  // What a cell receives first, it receives right after the cell before, unless it has two passes
  // to feed; the rest may have to wait for that.
  std::int64_t previous = -1;
  for (std::int64_t* received : sends) {
    const std::int64_t cell = *received;
    const bool first = cell != std::exchange(previous, cell) && cell != kNever;
    if (first && !row_[static_cast<std::size_t>(cell)].overlapped()) --*received;
  }
}

}  // namespace penstock::schedule
