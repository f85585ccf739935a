// IndexedSource: a data source over samples that can be fetched by number.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "model/data/sampler.h"
#include "model/data_source.h"

namespace penstock::model {

// Does all of a DataSource but fetching: order, position, epochs. The id of a row is its sample's
// number, whatever the order.
class IndexedSource : public DataSource {
 public:
  std::optional<MicroBatch> next(std::int64_t rows) final;
  std::int64_t position() const final { return position_; }
  void seek(std::int64_t position) final;
  std::optional<std::int64_t> remaining() const final { return sampler_.size() - position_; }
  void begin_epoch(std::int64_t epoch) final;

 protected:
  // Shuffled when a seed is given.
  IndexedSource(std::int64_t samples, std::optional<std::uint64_t> shuffle_seed)
      : sampler_(samples, shuffle_seed) {}

  // Fresh tensors with one row per sample, in this order; the ids are filled in by next().
  virtual MicroBatch fetch(std::span<const std::int64_t> samples) = 0;

  // Where fetched tensors come from.
  const std::shared_ptr<tensor::Allocator>& memory() const { return memory_; }

 private:
  Sampler sampler_;
  std::int64_t position_ = 0;
  std::shared_ptr<tensor::Allocator> memory_ = tensor::make_cpu_allocator();
};

}  // namespace penstock::model
