#include "model/data/repeating_source.h"

#include <cstring>
#include <string>
#include <utility>

#include "tensor/error.h"

namespace penstock::model {

namespace {

using tensor::Tensor;

// b's rows after a's.
Tensor join_rows(const std::shared_ptr<tensor::Allocator>& memory, const Tensor& a,
                 const Tensor& b) {
  const std::int64_t rows = a.dim(0) + b.dim(0);
  const tensor::Shape shape = a.shape().with_dim(0, rows);
  if (a.dtype() != b.dtype() || shape != b.shape().with_dim(0, rows)) {
    throw tensor::InvalidArgument(
        "[data] a micro batch reaches over the end of an epoch and cannot join " + a.to_string() +
        " with " + b.to_string());
  }
  Tensor result = Tensor::empty(memory, shape, a.dtype());
  if (a.nbytes() > 0) std::memcpy(result.raw(), a.raw(), a.nbytes());
  if (b.nbytes() > 0) std::memcpy(result.raw() + a.nbytes(), b.raw(), b.nbytes());
  return result;
}

void append(const std::shared_ptr<tensor::Allocator>& memory, MicroBatch& batch,
            const MicroBatch& more) {
  if (batch.inputs.size() != more.inputs.size() || batch.labels.size() != more.labels.size()) {
    throw tensor::InvalidArgument(
        "[data] a micro batch reaches over the end of an epoch and the source gives another number "
        "of tensors after it");
  }
  const auto join = [&memory](std::vector<Tensor>& all, const std::vector<Tensor>& added) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = join_rows(memory, all[i], added[i]);
  };
  join(batch.inputs, more.inputs);
  join(batch.labels, more.labels);
  batch.ids.insert(batch.ids.end(), more.ids.begin(), more.ids.end());
}

}  // namespace

RepeatingSource::RepeatingSource(std::unique_ptr<DataSource> source) : source_(std::move(source)) {
  source_->begin_epoch(0);
  const std::optional<std::int64_t> length = source_->remaining();
  if (!length) {
    throw tensor::InvalidArgument(
        "[data] a source that never ends cannot be repeated; use it as "
        "it is");
  }
  if (*length == 0) {
    throw tensor::InvalidArgument(
        "[data] expected a source with samples to repeat, got an empty "
        "one");
  }
  length_ = *length;
}

std::optional<MicroBatch> RepeatingSource::next(std::int64_t rows) {
  MicroBatch batch = next_piece(rows);
  while (batch.rows() < rows) append(memory_, batch, next_piece(rows - batch.rows()));
  return batch;
}

// Up to so many rows, at least one, all of one epoch.
MicroBatch RepeatingSource::next_piece(std::int64_t rows) {
  if (source_->position() == length_) source_->begin_epoch(++epoch_);
  std::optional<MicroBatch> piece = source_->next(rows);
  if (!piece || piece->rows() == 0) {
    throw tensor::InvalidArgument(
        "[data] the source ended at sample " + std::to_string(source_->position()) + " of epoch " +
        std::to_string(epoch_) + "; it began with " + std::to_string(length_));
  }
  for (std::int64_t& id : piece->ids) {
    if (id < 0 || id >= length_) {
      throw tensor::InvalidArgument("[data] expected sample ids in [0, " + std::to_string(length_) +
                                    ") from a source that is repeated, got " + std::to_string(id));
    }
    id += epoch_ * length_;
  }
  return std::move(*piece);
}

void RepeatingSource::seek(std::int64_t position) {
  if (position < 0) {
    throw tensor::InvalidArgument("[data] expected a position >= 0, got " +
                                  std::to_string(position));
  }
  const std::int64_t epoch = position / length_;
  if (epoch != epoch_) {
    source_->begin_epoch(epoch);
    epoch_ = epoch;
  }
  source_->seek(position % length_);
}

}  // namespace penstock::model
