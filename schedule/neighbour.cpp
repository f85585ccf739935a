#include "schedule/neighbour.h"

#include <algorithm>
#include <limits>
#include <ranges>
#include <string>

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
      received_in_(
          static_cast<std::size_t>(source.map.num_chunks(self)),
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
          received_in(map.chunk_of(before), action.micro_batch) = cell;
        }
      } else if (gives_gradient(action)) {
        if (mine_before) gradients_.push_back({map.chunk_of(before), action.micro_batch, cell});
        if (mine_after) received_in(map.chunk_of(after), action.micro_batch) = cell;
      }
    }
  }
}

// The peer receives in the order in which this rank sends: a message that it needs late, but that
// was sent before one that it needs early, is received with the early one.
void Neighbour::order_receives(const RowSource& source, const Row& own) {
  std::int64_t earliest = kNever;
  for (const Cell& cell : std::views::reverse(own)) {
    for (const Action& action : std::views::reverse(cell.actions())) {
      const std::int32_t to = action.stage.value + (source.trains ? -1 : 1);
      const bool sends =
          source.trains ? gives_gradient(action) : action.kind == ActionKind::kForward;
      if (!sends || !owned_by(source.map, to, peer_)) continue;
      std::int64_t& received = received_in(source.map.chunk_of(action.stage), action.micro_batch);
      earliest = received = std::min(received, earliest);
    }
  }
}

bool Neighbour::receives_next(std::int64_t cell, std::int64_t done) const {
  if (cell <= done) return true;
  // The very next cell's receives are this rank's own messages, unless it has two passes to feed.
  return cell == done + 1 && !row_[static_cast<std::size_t>(cell)].overlapped();
}

}  // namespace penstock::schedule
