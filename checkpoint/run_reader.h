// Reads runs of elements of a stored tensor: small ones out of a window that is read at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"

namespace penstock::checkpoint {

// Of one stored tensor; runs come in ascending order.
class RunReader {
 public:
  RunReader(const SafetensorsFile& file, const StoredTensor& stored)
      : file_(file), stored_(stored), element_(tensor::size_of(stored.dtype)) {}

  void read(std::int64_t first, std::span<std::byte> out) {
    if (out.size() >= kWindowBytes) {
      file_.read_elements(stored_, first, out);
      return;
    }
    const std::size_t begin = static_cast<std::size_t>(first) * element_;
    if (begin < window_begin_ || begin + out.size() > window_begin_ + window_.size()) {
      const std::size_t total = static_cast<std::size_t>(stored_.end - stored_.begin);
      window_.resize(std::min(kWindowBytes, total - begin));
      window_begin_ = begin;
      file_.read_elements(stored_, first, window_);
    }
    std::memcpy(out.data(), window_.data() + (begin - window_begin_), out.size());
  }

 private:
  // Runs shorter than this are copied out of a window.
  static constexpr std::size_t kWindowBytes = std::size_t{1} << 20;

  const SafetensorsFile& file_;
  const StoredTensor& stored_;
  std::size_t element_;
  std::vector<std::byte> window_;
  std::size_t window_begin_ = 0;
};

}  // namespace penstock::checkpoint
