#include "schedule/stage_map.h"

#include <algorithm>

namespace penstock::schedule {
namespace {

[[noreturn]] void throw_none(const char* what, std::int64_t value, std::int64_t count) {
  throw ScheduleError("[stage map] " + std::string(what) + " " + std::to_string(value) +
                      " does not exist; expected 0 to " + std::to_string(count - 1));
}

// More than any pipe has; a map of that size still takes little memory.
constexpr int kMostStages = 1 << 20;

// The owners of a map made by a rule; ScheduleError for sizes that are none.
template <class Rule>
std::vector<std::int32_t> owners_by(int ranks, int chunks, Rule rule) {
  if (ranks < 1 || chunks < 1) {
    throw ScheduleError("[stage map] pipeline.stages is " + std::to_string(ranks) +
                        " and pipeline.chunks is " + std::to_string(chunks) +
                        "; expected 1 or more of both");
  }
  if (chunks > kMostStages / ranks) {
    throw ScheduleError("[stage map] pipeline.stages " + std::to_string(ranks) +
                        " times pipeline.chunks " + std::to_string(chunks) + " is more than the " +
                        std::to_string(kMostStages) +
                        " stages that a pipe may have; lower one of the two");
  }
  std::vector<std::int32_t> owners(static_cast<std::size_t>(ranks) *
                                   static_cast<std::size_t>(chunks));
  for (std::size_t stage = 0; stage < owners.size(); ++stage) {
    const auto position = static_cast<std::int32_t>(stage % static_cast<std::size_t>(ranks));
    owners[stage] =
        rule(position, static_cast<std::int32_t>(stage / static_cast<std::size_t>(ranks)));
  }
  return owners;
}

}  // namespace

struct StageMap::Data {
  std::vector<PipeRank> owners;               // by stage
  std::vector<ChunkId> chunks;                // by stage
  std::vector<std::vector<StageId>> by_rank;  // stages, ascending
};

StageMap::StageMap(std::span<const std::int32_t> owners) {
  if (owners.empty()) throw ScheduleError("[stage map] it is empty; expected an owner per stage");
  const auto largest = std::ranges::max(owners);
  if (std::ranges::min(owners) < 0 || static_cast<std::size_t>(largest) >= owners.size()) {
    throw ScheduleError(
        "[stage map] pipeline.stage_map names rank " +
        std::to_string(std::ranges::min(owners) < 0 ? std::ranges::min(owners) : largest) +
        "; expected ranks from 0, fewer than the " + std::to_string(owners.size()) + " stages");
  }
  auto data = std::make_shared<Data>();
  data->by_rank.resize(static_cast<std::size_t>(largest) + 1);
  for (const std::int32_t owner : owners) {
    auto& stages = data->by_rank[static_cast<std::size_t>(owner)];
    data->chunks.emplace_back(static_cast<std::int32_t>(stages.size()));
    stages.emplace_back(static_cast<std::int32_t>(data->owners.size()));
    data->owners.emplace_back(owner);
  }
  for (std::size_t rank = 0; rank < data->by_rank.size(); ++rank) {
    if (data->by_rank[rank].empty()) {
      throw ScheduleError("[stage map] pipeline.stage_map gives rank " + std::to_string(rank) +
                          " no stage; expected every rank from 0 to " + std::to_string(largest) +
                          " to own one");
    }
  }
  data_ = std::move(data);
}

StageMap StageMap::loop(int ranks, int chunks) {
  return StageMap(
      owners_by(ranks, chunks, [](std::int32_t position, std::int32_t) { return position; }));
}

StageMap StageMap::v(int ranks, int chunks) {
  return StageMap(owners_by(ranks, chunks, [ranks](std::int32_t position, std::int32_t round) {
    return round % 2 == 0 ? position : ranks - 1 - position;
  }));
}

int StageMap::num_ranks() const {
  return static_cast<int>(data_->by_rank.size());
}

int StageMap::num_stages() const {
  return static_cast<int>(data_->owners.size());
}

int StageMap::num_chunks(PipeRank rank) const {
  return static_cast<int>(stages_of(rank).size());
}

PipeRank StageMap::rank_of(StageId stage) const {
  if (stage.value < 0 || stage.value >= num_stages()) {
    throw_none("stage", stage.value, num_stages());
  }
  return data_->owners[static_cast<std::size_t>(stage.value)];
}

ChunkId StageMap::chunk_of(StageId stage) const {
  if (stage.value < 0 || stage.value >= num_stages()) {
    throw_none("stage", stage.value, num_stages());
  }
  return data_->chunks[static_cast<std::size_t>(stage.value)];
}

StageId StageMap::stage_of(PipeRank rank, ChunkId chunk) const {
  const std::span<const StageId> stages = stages_of(rank);
  if (chunk.value < 0 || static_cast<std::size_t>(chunk.value) >= stages.size()) {
    throw_none("chunk", chunk.value, static_cast<std::int64_t>(stages.size()));
  }
  return stages[static_cast<std::size_t>(chunk.value)];
}

std::span<const StageId> StageMap::stages_of(PipeRank rank) const {
  if (rank.value < 0 || rank.value >= num_ranks()) throw_none("rank", rank.value, num_ranks());
  return data_->by_rank[static_cast<std::size_t>(rank.value)];
}

bool operator==(const StageMap& a, const StageMap& b) {
  return a.data_ == b.data_ || a.data_->owners == b.data_->owners;
}

std::string to_text(const StageMap& map) {
  std::string text;
  for (int stage = 0; stage < map.num_stages(); ++stage) {
    if (stage > 0) text += ',';
    text += std::to_string(map.rank_of(StageId{stage}).value);
  }
  return text;
}

}  // namespace penstock::schedule
