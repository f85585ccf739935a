#include "model/data/indexed_source.h"

#include <algorithm>
#include <string>

#include "tensor/error.h"

namespace penstock::model {

std::optional<MicroBatch> IndexedSource::next(std::int64_t rows) {
  if (rows < 1) {
    throw tensor::InvalidArgument("[data] expected to be asked for at least one row, got " +
                                  std::to_string(rows));
  }
  const std::int64_t count = std::min(rows, sampler_.size() - position_);
  if (count == 0) return std::nullopt;
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(sampler_[position_ + i]);
  MicroBatch batch = fetch(samples);
  batch.ids = std::move(samples);
  position_ += count;
  return batch;
}

void IndexedSource::seek(std::int64_t position) {
  if (position < 0 || position > sampler_.size()) {
    throw tensor::InvalidArgument("[data] expected a position in [0, " +
                                  std::to_string(sampler_.size()) + "], got " +
                                  std::to_string(position));
  }
  position_ = position;
}

void IndexedSource::begin_epoch(std::int64_t epoch) {
  sampler_.set_epoch(epoch);
  position_ = 0;
}

}  // namespace penstock::model
