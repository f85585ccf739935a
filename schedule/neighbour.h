// What a rank must know of a neighbour's row to lower its own; private to lowering.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/table.h"

namespace penstock::schedule {

// A message that this rank gets: for which of its chunks, and after which of the peer's cells it is
// sent.
struct Incoming {
  ChunkId chunk;
  MicroBatchId micro_batch;
  std::int64_t sent_after = 0;
};

// Cells are counted without idle ones.
class Neighbour {
 public:
  // `own` is the row of `self`, without idle cells. ScheduleError when the peer's row is not one.
  Neighbour(const RowSource& source, PipeRank self, const Row& own, PipeRank peer);

  // The messages from the peer, in the order in which it sends them.
  const std::vector<Incoming>& activations() const { return activations_; }
  const std::vector<Incoming>& gradients() const { return gradients_; }

  // The cell at whose beginning the peer receives the last message that `chunk` sends it for the
  // micro batch: the gradient; forward only: the activation.
  std::int64_t received_in(ChunkId chunk, MicroBatchId micro_batch) const {
    return received_in_[static_cast<std::size_t>(chunk.value)]
                       [static_cast<std::size_t>(micro_batch.value)];
  }
  // Whether the peer, once it is past its cell `done`, is sure to receive what it receives in
  // `cell` without computing or hearing from any other rank before. If so for a cell, then for all
  // earlier ones.
  bool receives_next(std::int64_t cell, std::int64_t done) const;

 private:
  void read_peer(const RowSource& source);
  void order_receives(const RowSource& source, const Row& own);
  std::int64_t& received_in(ChunkId chunk, MicroBatchId micro_batch) {
    return received_in_[static_cast<std::size_t>(chunk.value)]
                       [static_cast<std::size_t>(micro_batch.value)];
  }

  PipeRank self_, peer_;
  Row row_;
  std::vector<Incoming> activations_, gradients_;
  // By own chunk and micro batch.
  std::vector<std::vector<std::int64_t>> received_in_;
};

// The row without its idle cells. ScheduleError, naming the rank, unless every action is of a stage
// of that rank and a micro batch that exists.
Row compact_row(const RowSource& source, PipeRank rank);

}  // namespace penstock::schedule
