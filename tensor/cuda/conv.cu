// Convolution as matrix products: what each element of y reads of x is unfolded into a column of a
// panel, for some images at a time.
//
//   y = weight · panel      d_panel = weightᵀ · d_y      d_weight = d_y · panelᵀ
//
// A panel's rows are the taps (places in the kernel) of all channels, its columns the elements of
// the images' planes of y, one image behind the other; y's elements are brought into that order, a
// row per filter, and back.
#include <algorithm>
#include <cstdint>

#include "tensor/cpu/workspace.h"
#include "tensor/cuda/blas.h"
#include "tensor/cuda/block.h"
#include "tensor/cuda/conv.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/matmul.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

constexpr const char* kName = "conv2d";
constexpr int kThreads = 256;
// A panel is long enough for products that fill the device, and short beside its memory.
constexpr std::int64_t kPanel = std::int64_t{1} << 24;  // elements

// Images [first, first + images) of a convolution; x and y are those of all.
struct Piece {
  ConvShape shape;
  std::int64_t first, images;

  constexpr std::int64_t taps() const {
    return shape.window.kernel.height * shape.window.kernel.width;
  }
  constexpr std::int64_t rows() const { return shape.channels * taps(); }
  constexpr std::int64_t plane() const { return shape.out.height * shape.out.width; }
  constexpr std::int64_t columns() const { return images * plane(); }
};

__device__ inline std::int64_t thread_index() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

// A thread for each column, of rows blockIdx.y, …
template <class T>
__global__ void __launch_bounds__(kThreads) unfold(const Piece p, const T* x, T* panel) {
  const ConvShape& s = p.shape;
  const std::int64_t column = thread_index();
  if (column >= p.columns()) return;
  const std::int64_t image = p.first + column / p.plane();
  const std::int64_t top = column % p.plane() / s.out.width * s.window.stride.height;
  const std::int64_t left = column % s.out.width * s.window.stride.width;
  for (std::int64_t row = blockIdx.y; row < p.rows(); row += gridDim.y) {
    const std::int64_t tap = row % p.taps();
    const std::int64_t y = top + tap / s.window.kernel.width - s.window.padding.height;
    const std::int64_t at = left + tap % s.window.kernel.width - s.window.padding.width;
    const bool inside = y >= 0 && y < s.image.height && at >= 0 && at < s.image.width;
    const std::int64_t plane = image * s.channels + row / p.taps();
    panel[row * p.columns() + column] =
        inside ? x[(plane * s.image.height + y) * s.image.width + at] : T{};
  }
}

// The transpose: an element of d_x adds up what was read of it. A thread for each element of an
// image's channel, of which there is one for each blockIdx.y, ….
template <class C, class Out>
__global__ void __launch_bounds__(kThreads)
    fold(const Piece p, const C* panel, const bool accumulate, Out* d_x) {
  const ConvShape& s = p.shape;
  const Window2d& w = s.window;
  const std::int64_t size = s.image.height * s.image.width;
  const std::int64_t element = thread_index();
  if (element >= size) return;
  for (std::int64_t plane = blockIdx.y; plane < p.images * s.channels; plane += gridDim.y) {
    const std::int64_t image = plane / s.channels, channel = plane % s.channels;
    Out& to = d_x[(p.first * s.channels + plane) * size + element];
    C sum = accumulate ? C(widen(to)) : C(0);
    for (std::int64_t tap = 0; tap < p.taps(); ++tap) {
      const std::int64_t y = element / s.image.width + w.padding.height - tap / w.kernel.width;
      const std::int64_t at = element % s.image.width + w.padding.width - tap % w.kernel.width;
      if (y < 0 || at < 0 || y % w.stride.height != 0 || at % w.stride.width != 0) continue;
      const std::int64_t line = y / w.stride.height, place = at / w.stride.width;
      if (line >= s.out.height || place >= s.out.width) continue;
      sum += panel[(channel * p.taps() + tap) * p.columns() + image * p.plane() +
                   line * s.out.width + place];
    }
    to = narrow<Out>(sum);
  }
}

// y's place of a column of a filter.
__device__ inline std::int64_t place_in_y(const Piece& p, std::int64_t filter,
                                          std::int64_t column) {
  const std::int64_t image = p.first + column / p.plane();
  return (image * p.shape.filters + filter) * p.plane() + column % p.plane();
}

template <class T>
__global__ void __launch_bounds__(kThreads) gather(const Piece p, const T* y, T* matrix) {
  const std::int64_t column = thread_index();
  if (column >= p.columns()) return;
  for (std::int64_t filter = blockIdx.y; filter < p.shape.filters; filter += gridDim.y) {
    matrix[filter * p.columns() + column] = y[place_in_y(p, filter, column)];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter(const Piece p, const Compute<T>* matrix, const T* bias, T* y) {
  const std::int64_t column = thread_index();
  if (column >= p.columns()) return;
  for (std::int64_t filter = blockIdx.y; filter < p.shape.filters; filter += gridDim.y) {
    const Compute<T> start = bias != nullptr ? Compute<T>(widen(bias[filter])) : Compute<T>(0);
    y[place_in_y(p, filter, column)] = narrow<T>(start + matrix[filter * p.columns() + column]);
  }
}

// A block for each filter.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    sum_filters(const Piece p, const T* d_y, const bool accumulate, Out* d_bias) {
  const std::int64_t filter = blockIdx.x;
  double sum = 0;
  for (std::int64_t column = threadIdx.x; column < p.columns(); column += kThreads) {
    sum += static_cast<double>(widen(d_y[place_in_y(p, filter, column)]));
  }
  sum = block_sum(sum, shared_memory<double>());
  if (threadIdx.x != 0) return;
  if (accumulate) sum += static_cast<double>(widen(d_bias[filter]));
  d_bias[filter] = narrow<Out>(static_cast<Compute<Out>>(sum));
}

dim3 grid_of(std::int64_t columns, std::int64_t rows) {
  constexpr std::int64_t kMostRows = 65535;
  return dim3(static_cast<unsigned>((columns + kThreads - 1) / kThreads),
              static_cast<unsigned>(std::min(rows, kMostRows)));
}

// Calls run(piece) for all images, some at a time.
template <class Run>
void for_pieces(const ConvShape& shape, const Run& run) {
  const Piece all{shape, 0, shape.images};
  const std::int64_t size = std::max<std::int64_t>(all.rows() * all.plane(), 1);
  const std::int64_t step = std::clamp<std::int64_t>(kPanel / size, 1, 1 << 20);
  for (std::int64_t first = 0; first < shape.images; first += step) {
    run(Piece{shape, first, std::min(step, shape.images - first)});
  }
}

// Calls run(element of out's dtype): T, or f32 beside 16 bits.
template <class T, class Run>
void for_out_dtype(const Tensor& out, const Run& run) {
  out.dtype() == dtype_of<T>() ? run(T{}) : run(Compute<T>{});
}

}  // namespace

void conv2d(const Context& context, const ConvShape& shape, const Tensor& x, const Tensor& weight,
            const Tensor& bias, const Tensor& y) {
  Queue& queue = queue_of(context);
  for_cpu_dtype(kName, y.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    for_pieces(shape, [&](const Piece& p) {
      const cpu::Workspace<T> panel(context, p.rows() * p.columns());
      const cpu::Workspace<C> result(context, shape.filters * p.columns());
      launch(independent(unfold<T>), grid_of(p.columns(), p.rows()), kThreads, 0, queue.stream(), p,
             x.data<T>(), panel.data());
      multiply(queue, kName,
               {dtype_of<T>(),
                dtype_of<C>(),
                1,
                {shape.filters, p.columns(), p.rows()},
                weight.raw(),
                panel.data(),
                nullptr,
                false,
                result.data()});
      launch(independent(scatter<T>), grid_of(p.columns(), shape.filters), kThreads, 0,
             queue.stream(), p, result.data(), bias.defined() ? bias.data<T>() : nullptr,
             y.data<T>());
    });
  });
}

void conv2d_input(const Context& context, const ConvShape& shape, const Tensor& d_y,
                  const Tensor& weight, bool accumulate, const Tensor& d_x) {
  Queue& queue = queue_of(context);
  for_cpu_dtype(kName, d_y.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    for_pieces(shape, [&](const Piece& p) {
      const cpu::Workspace<T> gradient(context, shape.filters * p.columns());
      const cpu::Workspace<C> panel(context, p.rows() * p.columns());
      launch(independent(gather<T>), grid_of(p.columns(), shape.filters), kThreads, 0,
             queue.stream(), p, d_y.data<T>(), gradient.data());
      multiply(queue, kName,
               {dtype_of<T>(),
                dtype_of<C>(),
                1,
                {p.rows(), p.columns(), shape.filters, /*transpose_a=*/true},
                weight.raw(),
                gradient.data(),
                nullptr,
                false,
                panel.data()});
      for_out_dtype<T>(d_x, [&]<class Out>(Out) {
        const dim3 grid =
            grid_of(shape.image.height * shape.image.width, p.images * shape.channels);
        launch(independent(fold<C, Out>), grid, kThreads, 0, queue.stream(), p, panel.data(),
               accumulate, d_x.data<Out>());
      });
    });
  });
}

void conv2d_weight(const Context& context, const ConvShape& shape, const Tensor& d_y,
                   const Tensor& x, bool accumulate, const Tensor& d_weight) {
  Queue& queue = queue_of(context);
  if (shape.images == 0) {
    if (!accumulate) context.allocator->zero(d_weight.raw(), d_weight.nbytes());
    return;
  }
  for_cpu_dtype(kName, d_y.dtype(), [&]<class T>(T) {
    for_pieces(shape, [&](const Piece& p) {
      const cpu::Workspace<T> gradient(context, shape.filters * p.columns());
      const cpu::Workspace<T> panel(context, p.rows() * p.columns());
      launch(independent(gather<T>), grid_of(p.columns(), shape.filters), kThreads, 0,
             queue.stream(), p, d_y.data<T>(), gradient.data());
      launch(independent(unfold<T>), grid_of(p.columns(), p.rows()), kThreads, 0, queue.stream(), p,
             x.data<T>(), panel.data());
      multiply(queue, kName,
               {dtype_of<T>(),
                d_weight.dtype(),
                1,
                {shape.filters, p.rows(), p.columns(), false, /*transpose_b=*/true},
                gradient.data(),
                panel.data(),
                nullptr,
                accumulate || p.first > 0,
                d_weight.raw()});
    });
  });
}

void conv2d_bias(const Context& context, const ConvShape& shape, const Tensor& d_y, bool accumulate,
                 const Tensor& d_bias) {
  const Queue& queue = queue_of(context);
  for_cpu_dtype(kName, d_y.dtype(), [&]<class T>(T) {
    for_out_dtype<T>(d_bias, [&]<class Out>(Out) {
      launch(synchronising(sum_filters<T, Out>), static_cast<unsigned>(shape.filters), kThreads,
             kWarp * sizeof(double), queue.stream(), Piece{shape, 0, shape.images}, d_y.data<T>(),
             accumulate, d_bias.data<Out>());
    });
  });
}

}  // namespace penstock::tensor::cuda
