// RepeatingSource: a finite source, pass after pass, without end.
#pragma once

#include <memory>

#include "model/data_source.h"

namespace penstock::model {

// Pass e runs in the order of the source's epoch e. The position counts on through the passes; a
// row's id is e · length + the source's id, which must lie in [0, length). A micro batch may reach
// over the end of a pass, when the tensors of both agree in dtype and in all dimensions but rows.
class RepeatingSource final : public DataSource {
 public:
  // Throws InvalidArgument for a source with no samples, or one that never ends.
  explicit RepeatingSource(std::unique_ptr<DataSource> source);

  std::optional<MicroBatch> next(std::int64_t rows) override;
  std::int64_t position() const override { return epoch_ * length_ + source_->position(); }
  void seek(std::int64_t position) override;
  std::optional<std::int64_t> remaining() const override { return std::nullopt; }
  std::optional<std::int64_t> left_in_pass() const override {
    return length_ - source_->position() % length_;
  }

  std::int64_t epoch() const { return epoch_; }
  std::int64_t epoch_length() const { return length_; }

 private:
  MicroBatch next_piece(std::int64_t rows);

  std::unique_ptr<DataSource> source_;
  std::shared_ptr<tensor::Allocator> memory_ = tensor::make_cpu_allocator();  // of joined rows
  std::int64_t length_ = 0;
  std::int64_t epoch_ = 0;
};

}  // namespace penstock::model
