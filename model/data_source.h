// Where samples come from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/context.h"
#include "tensor/tensor.h"

namespace penstock::model {

// Host tensors whose first axis is rows, one row per sample.
struct MicroBatch {
  std::vector<tensor::Tensor> inputs;
  std::vector<tensor::Tensor> labels;
  std::vector<std::int64_t> ids;  // global sample id of each row, unique over epochs
  // What layers read by name; of any shape. Sources have none, since ranks in the middle of a pipe
  // ask no source; Engine::step has.
  NamedTensors named = {};

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
};

// Samples in one global order, the same for every copy of the source on any rank. Each loading
// rank owns a source and seeks to the rows that are its own. Not thread-safe.
class DataSource {
 public:
  virtual ~DataSource() = default;
  // The next rows of the order; fewer only at its end, nullopt when none are left.
  virtual std::optional<MicroBatch> next(std::int64_t rows) = 0;
  // Samples from the beginning of the order to what next() would give. A source that repeats counts
  // on through its epochs.
  virtual std::int64_t position() const = 0;
  virtual void seek(std::int64_t position) = 0;
  // Samples left from position() to the end of the order; nullopt when it never ends.
  virtual std::optional<std::int64_t> remaining() const = 0;
  // Of a source that repeats a finite one: samples left of the pass that next() goes on with, from
  // 1 on. nullopt for others.
  virtual std::optional<std::int64_t> left_in_pass() const { return std::nullopt; }
  // Goes back to the beginning for another pass, in the order of that epoch; a new source is in
  // epoch 0. By default all epochs have one order.
  virtual void begin_epoch(std::int64_t /*epoch*/) { seek(0); }
};

}  // namespace penstock::model
