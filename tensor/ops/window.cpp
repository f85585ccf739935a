#include "tensor/ops/window.h"

#include <limits>

#include "tensor/ops/check.h"

namespace penstock::tensor {

namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

void check_size(const char* op, const char* what, const Size2d& size, std::int64_t least) {
  for (const std::int64_t value : {size.height, size.width}) {
    if (value >= least && value <= kLargest) continue;
    throw_invalid(
        op, "a " + std::string(what) + " of at least " + std::to_string(least) + " and below 2^31",
        size.to_string());
  }
}

}  // namespace

std::string Size2d::to_string() const {
  return std::to_string(height) + "×" + std::to_string(width);
}

void check_window(const char* op, const Window2d& window) {
  check_size(op, "kernel", window.kernel, 1);
  check_size(op, "stride", window.stride, 1);
  check_size(op, "padding", window.padding, 0);
}

Size2d count_positions(const char* op, const Size2d& image, const Window2d& window) {
  check_window(op, window);
  const Size2d padded = {image.height + 2 * window.padding.height,
                         image.width + 2 * window.padding.width};
  if (window.kernel.height > padded.height || window.kernel.width > padded.width) {
    throw_invalid(op,
                  "images of at least the kernel's size " + window.kernel.to_string() +
                      ", with padding " + window.padding.to_string() + " on each side",
                  image.to_string());
  }
  return {(padded.height - window.kernel.height) / window.stride.height + 1,
          (padded.width - window.kernel.width) / window.stride.width + 1};
}

}  // namespace penstock::tensor
