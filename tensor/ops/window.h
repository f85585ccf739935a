// Windows that move over the height and width of images: what convolution and pooling share.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::tensor {

// A size along the height and the width; one number stands for both.
struct Size2d {
  std::int64_t height, width;

  constexpr Size2d(std::int64_t both) : height(both), width(both) {}
  constexpr Size2d(std::int64_t height_size, std::int64_t width_size)
      : height(height_size), width(width_size) {}

  bool operator==(const Size2d&) const = default;
  // "3×3"
  std::string to_string() const;
};

struct Window2d {
  Size2d kernel;   // of the window, at least 1
  Size2d stride;   // from one position to the next, at least 1
  Size2d padding;  // around the image, at least 0
};

// Throws InvalidArgument, naming the operation, for sizes below those or beyond 2³¹ − 1.
void check_window(const char* op, const Window2d& window);

// How many positions lie inside of the padded image: ⌊(size + 2·padding − kernel) ÷ stride⌋ + 1.
// Throws InvalidArgument, naming the operation and the sizes, when the kernel is larger than that.
Size2d count_positions(const char* op, const Size2d& image, const Window2d& window);

}  // namespace penstock::tensor
