// Convolution as matrix products: the elements of x that each element of y reads are unfolded into
// the columns of a panel, a piece at a time.
//
//   y = weight · panel      d_panel = weightᵀ · d_y      d_weight = d_y · panelᵀ
//
// A panel's columns are the elements of some lines (rows of y, counted over all images); its rows
// are the taps (places in the kernel) of some channels. Chunks are cut by the shapes alone and own
// what they write, and what one chunk adds up it adds in order, so no result depends on threads.
// Elements of 16 bits become floats beforehand, as each is read many times over.
#include "tensor/cpu/conv.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "tensor/cpu/fill.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/staged.h"
#include "tensor/cpu/workspace.h"
#include "tensor/ops/check.h"
#include "tensor/parallel.h"

namespace penstock::tensor::cpu {

namespace {

// A panel fits a core's share of the cache. Its columns are enough for the BLAS to pack the weight
// at little cost, and its rows, where a chunk has some of the channels, too.
constexpr std::int64_t kPanel = 1 << 20;  // elements
constexpr std::int64_t kColumns = 512;
constexpr std::int64_t kFewestColumns = 64;
constexpr std::int64_t kRows = 256;

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

std::int64_t ceil_div(std::int64_t size, std::int64_t part) {
  return (size + part - 1) / part;
}

std::int64_t taps_of(const ConvShape& s) {
  return s.window.kernel.height * s.window.kernel.width;
}
std::int64_t filter_size(const ConvShape& s) {
  return s.channels * taps_of(s);
}
std::int64_t lines_of(const ConvShape& s) {
  return s.images * s.out.height;
}

// The lines of a panel of so many rows, of so many lines in all: at least one.
std::int64_t lines_per_panel(const ConvShape& s, std::int64_t rows, std::int64_t lines) {
  const std::int64_t columns = std::clamp(kPanel / rows, kFewestColumns, kColumns);
  return std::clamp<std::int64_t>(columns / s.out.width, 1, std::max<std::int64_t>(lines, 1));
}
// The channels of a chunk that works on some of them.
std::int64_t channels_per_chunk(const ConvShape& s) {
  return std::clamp<std::int64_t>(kRows / taps_of(s), 1, s.channels);
}

// The lines that lie in one image. y has their elements of one filter side by side.
template <class Visit>
void for_images(const ConvShape& s, Range lines, const Visit& visit) {
  for (std::int64_t line = lines.begin; line < lines.end;) {
    const std::int64_t image = line / s.out.height;
    const std::int64_t end = std::min(lines.end, (image + 1) * s.out.height);
    visit(image, Range{line - image * s.out.height, end - image * s.out.height});
    line = end;
  }
}

// The lines' elements of y as a matrix of a row per filter, y's offset and the matrix's: for copies
// in either direction.
template <class Copy>
void for_rows_of_y(const ConvShape& s, Range lines, const Copy& copy) {
  const std::int64_t columns = lines.size() * s.out.width;
  std::int64_t column = 0;
  for_images(s, lines, [&](std::int64_t image, Range inside) {
    const std::int64_t size = inside.size() * s.out.width;
    for (std::int64_t filter = 0; filter < s.filters; ++filter) {
      const std::int64_t line = (image * s.filters + filter) * s.out.height + inside.begin;
      copy(filter, line * s.out.width, filter * columns + column, size);
    }
    column += size;
  });
}

template <class T>
void gather(const ConvShape& s, const T* y, Range lines, T* matrix) {
  for_rows_of_y(s, lines, [&](std::int64_t, std::int64_t from, std::int64_t to, std::int64_t size) {
    std::copy_n(y + from, size, matrix + to);
  });
}

// Visits the panel line by line: its elements [0, low) and [high, out.width) there lie outside of
// the image, and element low + i is x's element `source` + i · stride.width.
struct PanelLine {
  std::int64_t offset;  // of its first element, in the panel
  std::int64_t low, high;
  std::int64_t source;
};
template <class Visit>
void for_panel_lines(const ConvShape& s, Range channels, Range lines, const Visit& visit) {
  const Window2d& w = s.window;
  PanelLine at{};
  for (std::int64_t row = channels.begin * taps_of(s); row < channels.end * taps_of(s); ++row) {
    const std::int64_t channel = row / taps_of(s);
    const std::int64_t top = row % taps_of(s) / w.kernel.width - w.padding.height;
    const std::int64_t left = row % w.kernel.width - w.padding.width;
    // x = column · stride + left lies in [0, width).
    const std::int64_t low =
        std::min(ceil_div(std::max<std::int64_t>(-left, 0), w.stride.width), s.out.width);
    const std::int64_t high =
        std::clamp(ceil_div(std::max<std::int64_t>(s.image.width - left, 0), w.stride.width), low,
                   s.out.width);
    for_images(s, lines, [&](std::int64_t image, Range inside) {
      const std::int64_t plane = (image * s.channels + channel) * s.image.height;
      for (std::int64_t line = inside.begin; line < inside.end; ++line) {
        const std::int64_t y = line * w.stride.height + top;
        const bool outside = y < 0 || y >= s.image.height;
        at.low = outside ? s.out.width : low;
        at.high = outside ? s.out.width : high;
        at.source = (plane + y) * s.image.width + low * w.stride.width + left;
        visit(at);
        at.offset += s.out.width;
      }
    });
  }
}

template <class T>
void unfold(const ConvShape& s, const T* x, Range channels, Range lines, T* panel) {
  const std::int64_t step = s.window.stride.width;
  for_panel_lines(s, channels, lines, [&](const PanelLine& line) {
    T* to = panel + line.offset;
    std::fill(to, to + line.low, T(0));
    if (line.low < line.high) {
      const T* from = x + line.source;
      if (step == 1) {
        std::copy_n(from, line.high - line.low, to + line.low);
      } else {
        for (std::int64_t i = line.low; i < line.high; ++i) to[i] = from[(i - line.low) * step];
      }
    }
    std::fill(to + line.high, to + s.out.width, T(0));
  });
}

// The transpose of unfold: adds each element of the panel to the element of x that it came from.
template <class T>
void fold_into(const ConvShape& s, const T* panel, Range channels, Range lines, T* x) {
  const std::int64_t step = s.window.stride.width;
  for_panel_lines(s, channels, lines, [&](const PanelLine& line) {
    if (line.low == line.high) return;
    const T* from = panel + line.offset;
    T* to = x + line.source;
    for (std::int64_t i = line.low; i < line.high; ++i) to[(i - line.low) * step] += from[i];
  });
}

template <class T>
void compute(const Context& context, const ConvShape& s, const T* x, const T* weight, const T* bias,
             T* y) {
  const std::int64_t rows = filter_size(s);
  const std::int64_t step = lines_per_panel(s, rows, lines_of(s));
  parallel_chunks(context, lines_of(s), step, [&](std::int64_t begin, std::int64_t end) {
    const Range lines{begin, end};
    const std::int64_t columns = lines.size() * s.out.width;
    const Workspace<T> panel(context, rows * columns);
    const Workspace<T> result(context, s.filters * columns);
    unfold(s, x, {0, s.channels}, lines, panel.data());
    gemm({s.filters, columns, rows}, {weight, rows}, {panel.data(), columns}, false,
         {result.data(), columns});
    for_rows_of_y(s, lines, [&](auto filter, auto to, auto from, auto size) {
      const T start = bias == nullptr ? T(0) : bias[filter];
      for (std::int64_t i = 0; i < size; ++i) y[to + i] = start + result.data()[from + i];
    });
  });
}

// d_x of some images and channels.
template <class T>
void compute_input(const Context& context, const ConvShape& s, const T* d_y, const T* weight,
                   bool accumulate, Range images, Range channels, T* d_x) {
  const std::int64_t plane = s.image.height * s.image.width;
  if (!accumulate) {
    for (std::int64_t image = images.begin; image < images.end; ++image) {
      std::fill_n(d_x + (image * s.channels + channels.begin) * plane, channels.size() * plane,
                  T(0));
    }
  }
  const std::int64_t rows = channels.size() * taps_of(s);
  const std::int64_t step = lines_per_panel(s, rows, images.size() * s.out.height);
  const Workspace<T> panel(context, rows * step * s.out.width);
  const Workspace<T> gradient(context, s.filters * step * s.out.width);
  const std::int64_t end = images.end * s.out.height;
  for (std::int64_t line = images.begin * s.out.height; line < end; line += step) {
    const Range lines{line, std::min(line + step, end)};
    const std::int64_t columns = lines.size() * s.out.width;
    gather(s, d_y, lines, gradient.data());
    gemm({rows, columns, s.filters, /*transpose_a=*/true},
         {weight + channels.begin * taps_of(s), filter_size(s)}, {gradient.data(), columns}, false,
         {panel.data(), columns});
    fold_into(s, panel.data(), channels, lines, d_x);
    poll_in_chunk(context);
  }
}

// The columns of d_weight that belong to some channels.
template <class T>
void compute_weight(const Context& context, const ConvShape& s, const T* d_y, const T* x,
                    bool accumulate, Range channels, T* d_weight) {
  const std::int64_t rows = channels.size() * taps_of(s);
  const std::int64_t step = lines_per_panel(s, rows, lines_of(s));
  const Workspace<T> panel(context, rows * step * s.out.width);
  const Workspace<T> gradient(context, s.filters * step * s.out.width);
  const Matrix<T> target = {d_weight + channels.begin * taps_of(s), filter_size(s)};
  for (std::int64_t line = 0; line < lines_of(s); line += step) {
    const Range lines{line, std::min(line + step, lines_of(s))};
    const std::int64_t columns = lines.size() * s.out.width;
    unfold(s, x, channels, lines, panel.data());
    gather(s, d_y, lines, gradient.data());
    gemm({s.filters, rows, columns, false, /*transpose_b=*/true}, {gradient.data(), columns},
         {panel.data(), columns}, accumulate || line > 0, target);
    poll_in_chunk(context);
  }
}

// In double, on lanes that a compiler may put side by side.
template <class T>
double sum(const T* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(values[i + lane]);
    }
  }
  double total = 0;
  for (; i < count; ++i) total += static_cast<double>(values[i]);
  for (const double lane : lanes) total += lane;
  return total;
}

}  // namespace

void conv2d(const Context& context, const ConvShape& shape, const Tensor& x, const Tensor& weight,
            const Tensor& bias, const Tensor& y) {
  for_cpu_dtype("conv2d", y.dtype(), [&]<class T>(T) {
    const Staged<T> image(context, x);
    const Staged<T> filters(context, weight);
    std::optional<Staged<T>> start;
    if (bias.defined()) start.emplace(context, bias);
    const StagedResult<T> result(context, y, /*keep=*/false);
    compute<Compute<T>>(context, shape, image.data(), filters.data(),
                        start ? start->data() : nullptr, result.data());
    result.store();
  });
}

void conv2d_input(const Context& context, const ConvShape& shape, const Tensor& d_y,
                  const Tensor& weight, bool accumulate, const Tensor& d_x) {
  const std::int64_t image_step =
      std::max<std::int64_t>(kColumns / (shape.out.height * shape.out.width), 1);
  const std::int64_t channel_step = channels_per_chunk(shape);
  const std::int64_t channel_chunks = ceil_div(shape.channels, channel_step);
  const std::int64_t chunks = ceil_div(shape.images, image_step) * channel_chunks;
  for_cpu_dtype("conv2d", d_y.dtype(), [&]<class T>(T) {
    const Staged<T> gradient(context, d_y);
    const Staged<T> filters(context, weight);
    for_result_dtype<T>(d_x, [&]<class Out>(Out) {
      const StagedResult<Out> result(context, d_x, accumulate);
      parallel_for(context, chunks, [&](std::int64_t chunk) {
        const std::int64_t image = chunk / channel_chunks * image_step;
        const std::int64_t channel = chunk % channel_chunks * channel_step;
        compute_input<Compute<T>>(context, shape, gradient.data(), filters.data(), accumulate,
                                  {image, std::min(image + image_step, shape.images)},
                                  {channel, std::min(channel + channel_step, shape.channels)},
                                  result.data());
      });
      result.store();
    });
  });
}

void conv2d_weight(const Context& context, const ConvShape& shape, const Tensor& d_y,
                   const Tensor& x, bool accumulate, const Tensor& d_weight) {
  if (shape.images == 0) {
    if (!accumulate) fill(context, d_weight, 0);
    return;
  }
  for_cpu_dtype("conv2d", d_y.dtype(), [&]<class T>(T) {
    const Staged<T> gradient(context, d_y);
    const Staged<T> image(context, x);
    for_result_dtype<T>(d_weight, [&]<class Out>(Out) {
      const StagedResult<Out> result(context, d_weight, accumulate);
      parallel_chunks(context, shape.channels, channels_per_chunk(shape),
                      [&](std::int64_t begin, std::int64_t end) {
                        compute_weight<Compute<T>>(context, shape, gradient.data(), image.data(),
                                                   accumulate, {begin, end}, result.data());
                      });
      result.store();
    });
  });
}

void conv2d_bias(const Context& context, const ConvShape& shape, const Tensor& d_y, bool accumulate,
                 const Tensor& d_bias) {
  constexpr std::int64_t kChunk = 1 << 15;  // elements
  const std::int64_t plane = shape.out.height * shape.out.width;
  const std::int64_t step =
      std::max<std::int64_t>(kChunk / std::max<std::int64_t>(shape.images * plane, 1), 1);
  for_cpu_dtype("conv2d", d_y.dtype(), [&]<class T>(T) {
    const Staged<T> gradient(context, d_y);
    for_result_dtype<T>(d_bias, [&]<class Out>(Out) {
      const StagedResult<Out> result(context, d_bias, accumulate);
      parallel_chunks(context, shape.filters, step, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t filter = begin; filter < end; ++filter) {
          double total = accumulate ? static_cast<double>(result.data()[filter]) : 0.0;
          for (std::int64_t image = 0; image < shape.images; ++image) {
            total += sum(gradient.data() + (image * shape.filters + filter) * plane, plane);
          }
          result.data()[filter] = static_cast<Compute<T>>(total);
        }
      });
      result.store();
    });
  });
}

}  // namespace penstock::tensor::cpu
