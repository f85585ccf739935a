// A product in tiles that pass through shared memory: for the shapes and alignments that cuBLASLt
// refuses, which are small or rare. It makes no use of tensor cores.
#include <cmath>

#include "tensor/cuda/block.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/matmul.h"
#include "tensor/cuda/queue.h"
#include "tensor/cuda/shared.h"
#include "tensor/ops/check.h"

namespace penstock::tensor::cuda {

namespace {

constexpr int kTile = 32;                        // rows and columns of c that a block makes
constexpr int kRows = 4;                         // of them that a thread makes
constexpr int kThreads = kTile * kTile / kRows;  // threadIdx.x / kTile is the first row
constexpr int kStride = kTile + 1;               // of a tile in shared memory: no bank conflicts

template <class T, class Out>
struct Operands {
  const T* a;
  const T* b;
  const T* bias;
  Out* c;
  bool accumulate;
};

template <class T, class Out>
__global__ void __launch_bounds__(kThreads)
    multiply_tiles(const Operands<T, Out> x, const GemmShape s, const std::int64_t tile_columns) {
  using C = Compute<T>;
  C* tile_a = shared_memory<C>();        // [row][k]
  C* tile_b = tile_a + kTile * kStride;  // [k][column]
  const std::int64_t first_row = blockIdx.x / tile_columns * kTile;
  const std::int64_t first_column = blockIdx.x % tile_columns * kTile;
  const T* a = x.a + blockIdx.y * s.m * s.k;
  const T* b = x.b + blockIdx.y * s.k * s.n;
  const int along = static_cast<int>(threadIdx.x) % kTile;
  const int across = static_cast<int>(threadIdx.x) / kTile;
  C sums[kRows] = {};
  for (std::int64_t k = 0; k < s.k; k += kTile) {
    for (int i = across; i < kTile; i += kTile / kRows) {
      // Neighbouring threads read neighbouring elements, whichever way a matrix is stored.
      const int row_a = s.transpose_a ? along : i, k_a = s.transpose_a ? i : along;
      const std::int64_t row = first_row + row_a, at_a = k + k_a;
      const bool inside_a = row < s.m && at_a < s.k;
      tile_a[row_a * kStride + k_a] =
          inside_a ? C(widen(a[s.transpose_a ? at_a * s.m + row : row * s.k + at_a])) : C(0);
      const int column_b = s.transpose_b ? i : along, k_b = s.transpose_b ? along : i;
      const std::int64_t column = first_column + column_b, at_b = k + k_b;
      const bool inside_b = column < s.n && at_b < s.k;
      tile_b[k_b * kStride + column_b] =
          inside_b ? C(widen(b[s.transpose_b ? column * s.k + at_b : at_b * s.n + column])) : C(0);
    }
    __syncthreads();
    for (int i = 0; i < kTile; ++i) {
      const C factor = tile_b[i * kStride + along];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r] = std::fma(tile_a[(across + r * (kTile / kRows)) * kStride + i], factor, sums[r]);
      }
    }
    __syncthreads();
  }
  const std::int64_t column = first_column + along;
  if (column >= s.n) return;
  Out* c = x.c + blockIdx.y * s.m * s.n;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = first_row + across + r * (kTile / kRows);
    if (row >= s.m) return;
    C result = sums[r];
    if (x.bias != nullptr) result += widen(x.bias[column]);
    if (x.accumulate) result += widen(c[row * s.n + column]);
    c[row * s.n + column] = narrow<Out>(result);
  }
}

constexpr unsigned kMostProducts = 65535;  // in one launch

template <class T, class Out>
void run(Queue& queue, std::int64_t batch, const GemmShape& s, Operands<T, Out> x) {
  const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  constexpr std::size_t kShared = 2 * kTile * kStride * sizeof(Compute<T>);
  for (std::int64_t done = 0; done < batch; done += kMostProducts) {
    const auto products =
        static_cast<unsigned>(batch - done < kMostProducts ? batch - done : kMostProducts);
    const dim3 grid(static_cast<unsigned>(tiles(s.m) * tiles(s.n)), products);
    launch(synchronising(multiply_tiles<T, Out>), grid, kThreads, kShared, queue.stream(), x, s,
           tiles(s.n));
    x.a += products * s.m * s.k;
    x.b += products * s.k * s.n;
    x.c += products * s.m * s.n;
  }
}

Product product_of(std::int64_t batch, const GemmShape& shape, const Tensor& a, const Tensor& b,
                   const Tensor* bias, bool accumulate, const Tensor& c) {
  return {a.dtype(),
          c.dtype(),
          batch,
          shape,
          a.raw(),
          b.raw(),
          bias == nullptr ? nullptr : bias->raw(),
          accumulate,
          c.raw()};
}

}  // namespace

void multiply(Queue& queue, const char* op, const Product& p) {
  if (p.batch * p.shape.m * p.shape.n == 0 || queue.blas().multiply(p)) return;
  for_cpu_dtype(op, p.in, [&]<class T>(T) {
    const auto run_to = [&]<class Out>(Out) {
      run<T, Out>(queue, p.batch, p.shape,
                  {static_cast<const T*>(p.a), static_cast<const T*>(p.b),
                   static_cast<const T*>(p.bias), static_cast<Out*>(p.c), p.accumulate});
    };
    p.out == p.in ? run_to(T{}) : run_to(Compute<T>{});
  });
}

void matmul(const Context& context, const char* op, std::int64_t batch, const GemmShape& shape,
            const Tensor& a, const Tensor& b, const Tensor* bias, bool accumulate,
            const Tensor& c) {
  multiply(queue_of(context), op, product_of(batch, shape, a, b, bias, accumulate, c));
}

Tensor matmul_and_sum(Context& context, const GemmShape& shape, const Tensor& a, const Tensor& b,
                      bool accumulate, const Tensor& c, SumOf what) {
  if (c.numel() == 0) return {};
  const bool of_a = what == SumOf::kA;
  Tensor sums = Tensor::empty(context, {of_a ? shape.m : shape.n}, c.dtype());
  Product product = product_of(1, shape, a, b, nullptr, accumulate, c);
  product.sums = sums.raw();
  product.sums_of_a = of_a;
  return queue_of(context).blas().multiply(product) ? sums : Tensor();
}

bool matmul_gelu(const Context& context, const GemmShape& shape, const Tensor& a, const Tensor& b,
                 const Tensor* bias, const Tensor& before, const Tensor& c) {
  if (c.numel() == 0) return false;
  Product product = product_of(1, shape, a, b, bias, false, c);
  product.gelu = Product::Gelu::kForward;
  product.before = before.raw();
  return queue_of(context).blas().multiply(product);
}

bool matmul_gelu_grad(const Context& context, const GemmShape& shape, const Tensor& a,
                      const Tensor& b, const Tensor& before, const Tensor& c) {
  if (c.numel() == 0) return false;
  Product product = product_of(1, shape, a, b, nullptr, false, c);
  product.gelu = Product::Gelu::kGrad;
  product.before = before.raw();
  return queue_of(context).blas().multiply(product);
}

}  // namespace penstock::tensor::cuda
