// Which rank of the pipe owns which stage.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/error.h"
#include "schedule/ids.h"

namespace penstock::schedule {

// Every rank owns at least one stage. A rank's chunks are its stages in ascending order. Immutable;
// copies share the data. Functions throw ScheduleError for a rank, stage or chunk that is not
// there.
class StageMap {
 public:
  // owners[s] is the pipe rank that owns stage s; ranks are 0 to the largest one named.
  // ScheduleError when empty, or when one of those ranks owns no stage.
  explicit StageMap(std::span<const std::int32_t> owners);

  // Stages go round the ranks: stage s on rank s mod ranks.
  static StageMap loop(int ranks, int chunks);
  // Stages go up the ranks and back again, staying one step at each end: 0 1 1 0, for 2 ranks.
  static StageMap v(int ranks, int chunks);

  int num_ranks() const;
  int num_stages() const;
  int num_chunks(PipeRank rank) const;
  PipeRank rank_of(StageId stage) const;
  ChunkId chunk_of(StageId stage) const;
  StageId stage_of(PipeRank rank, ChunkId chunk) const;
  // The stages of a rank, ascending.
  std::span<const StageId> stages_of(PipeRank rank) const;

  friend bool operator==(const StageMap& a, const StageMap& b);

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

// The owners of the stages, separated by commas: "0,1,1,0".
std::string to_text(const StageMap& map);

}  // namespace penstock::schedule
