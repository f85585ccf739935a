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

  // The peer's cell after which it is sure to have received the last message that `chunk` sends it
  // for the micro batch, or to do so next, with nothing else to wait for: the gradient; forward
  // only: the activation.
  std::int64_t received_after(ChunkId chunk, MicroBatchId micro_batch) const {
    return received_[static_cast<std::size_t>(chunk.value)]
                    [static_cast<std::size_t>(micro_batch.value)];
  }

 private:
  void read_peer(const RowSource& source);
  void order_receives(const RowSource& source, const Row& own);
  std::int64_t& received(ChunkId chunk, MicroBatchId micro_batch) {
    return received_[static_cast<std::size_t>(chunk.value)]
                    [static_cast<std::size_t>(micro_batch.value)];
  }

  PipeRank self_, peer_;
  Row row_;
  std::vector<Incoming> activations_, gradients_;
  // By own chunk and micro batch: received_after().
  std::vector<std::vector<std::int64_t>> received_;
};

// The row without its idle cells. ScheduleError, naming the rank, unless every action is of a stage
// of that rank and a micro batch that exists.
Row compact_row(const RowSource& source, PipeRank rank);

}  // namespace penstock::schedule
