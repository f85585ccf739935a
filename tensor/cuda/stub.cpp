// Stands for this folder in a build without PENSTOCK_CUDA: no device can be had, so no tensor of
// one ever reaches the kernels.
#include "tensor/cuda/attention.h"
#include "tensor/cuda/cast.h"
#include "tensor/cuda/conv.h"
#include "tensor/cuda/cross_entropy.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/dropout.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/embedding.h"
#include "tensor/cuda/fill.h"
#include "tensor/cuda/gelu.h"
#include "tensor/cuda/graph.h"
#include "tensor/cuda/matmul.h"
#include "tensor/cuda/norm.h"
#include "tensor/cuda/optim.h"
#include "tensor/cuda/pool.h"
#include "tensor/cuda/profiler.h"
#include "tensor/cuda/reduce.h"
#include "tensor/cuda/rotary.h"
#include "tensor/cuda/shape.h"
#include "tensor/cuda/squares.h"
#include "tensor/cuda/swiglu.h"
#include "tensor/error.h"

namespace penstock::tensor::cuda {

namespace {

[[noreturn]] void throw_absent() {
  throw Unsupported(
      "[cuda] this build computes on the CPU alone; for NVIDIA devices configure it with "
      "-DPENSTOCK_CUDA=ON where nvcc is installed");
}

}  // namespace

int device_count() {
  return 0;
}
std::string device_id(int) {
  throw_absent();
}
void begin_span(const char*) noexcept {}
void end_span() noexcept {}
std::shared_ptr<Allocator> make_cuda_allocator(const CudaOptions&) {
  throw_absent();
}
std::shared_ptr<Allocator> make_pinned_allocator() {
  throw_absent();
}
void set_progress(Allocator&, Progress*) {
  throw_absent();
}
std::int64_t host_waits(const Allocator&) {
  throw_absent();
}
DeviceMemory device_memory(const Allocator&) {
  throw_absent();
}
Graph::Graph(std::shared_ptr<Queue>, void*) {
  throw_absent();
}
Graph::~Graph() = default;
void Graph::launch() {
  throw_absent();
}
std::unique_ptr<Graph> capture(Allocator&, const std::function<void()>&) {
  throw_absent();
}
std::string run_watched(Allocator&, const std::function<void()>&) {
  throw_absent();
}
ForGraphs::ForGraphs(Allocator&) {
  throw_absent();
}
ForGraphs::~ForGraphs() = default;
bool is_graph_memory(const Allocator&, const void*) {
  throw_absent();
}
std::int64_t graph_bytes(const Allocator&) {
  throw_absent();
}

void matmul(const Context&, const char*, std::int64_t, const GemmShape&, const Tensor&,
            const Tensor&, const Tensor*, bool, const Tensor&) {
  throw_absent();
}
Tensor matmul_and_sum(Context&, const GemmShape&, const Tensor&, const Tensor&, bool, const Tensor&,
                      SumOf) {
  throw_absent();
}
bool matmul_gelu(const Context&, const GemmShape&, const Tensor&, const Tensor&, const Tensor*,
                 const Tensor&, const Tensor&) {
  throw_absent();
}
bool matmul_gelu_grad(const Context&, const GemmShape&, const Tensor&, const Tensor&, const Tensor&,
                      const Tensor&) {
  throw_absent();
}
void layer_norm(const Context&, const Tensor&, const Tensor&, const Tensor&, double, const Tensor&,
                const Tensor&, const Tensor&) {
  throw_absent();
}
void layer_norm_grad(const Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                     const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void softmax_cross_entropy(const Context&, const Tensor&, const Tensor&, std::int64_t,
                           const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void class_sums(const Context&, const Tensor&, const Tensor&, const IndexPart&, std::int64_t,
                const Tensor&) {
  throw_absent();
}
void join_class_sums(const Context&, const Tensor&, const Tensor&, std::int64_t, const Tensor&,
                     const Tensor&, const Tensor&) {
  throw_absent();
}
void softmax_cross_entropy_grad(const Context&, const Tensor&, const Tensor&, std::int64_t,
                                std::int64_t, const Tensor&, const Tensor&, const Tensor&,
                                const Tensor&) {
  throw_absent();
}
void attention(const Context&, const AttentionShape&, const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void attention_grad(const Context&, const AttentionShape&, const Tensor&, const Tensor&,
                    const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void sgd(const Context&, ParameterList, bool, const SgdFactors&) {
  throw_absent();
}
void adam(const Context&, ParameterList, const AdamFactors&) {
  throw_absent();
}
void lion(const Context&, ParameterList, const LionFactors&) {
  throw_absent();
}
void lamb_moments(const Context&, ParameterList, const LambFactors&, std::span<LambSums>) {
  throw_absent();
}
void lamb_apply(const Context&, ParameterList, const LambFactors&, std::span<const double>) {
  throw_absent();
}
void conv2d(const Context&, const ConvShape&, const Tensor&, const Tensor&, const Tensor&,
            const Tensor&) {
  throw_absent();
}
void conv2d_input(const Context&, const ConvShape&, const Tensor&, const Tensor&, bool,
                  const Tensor&) {
  throw_absent();
}
void conv2d_weight(const Context&, const ConvShape&, const Tensor&, const Tensor&, bool,
                   const Tensor&) {
  throw_absent();
}
void conv2d_bias(const Context&, const ConvShape&, const Tensor&, bool, const Tensor&) {
  throw_absent();
}

void add_into(const Context&, const Tensor&, const Tensor&, bool) {
  throw_absent();
}
void sum_squares_of_all(const Context&, std::span<const Tensor>, const Tensor&) {
  throw_absent();
}
bool all_finite(const Context&, const char*, const Tensor&) {
  throw_absent();
}
void binary(const Context&, const char*, BinaryKind, const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void cast(const Context&, const Tensor&, const Tensor&) {
  throw_absent();
}
void check_ids(const Context&, const Tensor&, std::int64_t) {
  throw_absent();
}
void copy_blocks(const Context&, const std::byte*, std::size_t, std::byte*, std::size_t,
                 std::size_t, std::int64_t) {
  throw_absent();
}
void dropout(const Context&, const Tensor&, double, const RandomKey&, const Tensor&, std::int64_t,
             const Tensor&) {
  throw_absent();
}
void fill(const Context&, const Tensor&, double) {
  throw_absent();
}
void gather_rows(const Context&, const Tensor&, const Tensor&, std::int64_t, const Tensor&) {
  throw_absent();
}
void gelu(const Context&, const Tensor&, const Tensor&) {
  throw_absent();
}
void gelu_grad(const Context&, const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void max_pool2d(const Context&, const PoolShape&, const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void max_pool2d_grad(const Context&, const PoolShape&, const Tensor&, const Tensor&,
                     const Tensor&) {
  throw_absent();
}
void repeat(const Context&, const Tensor&, const Tensor&) {
  throw_absent();
}
void rotary_qkv(const Context&, const RotaryShape&, const Tensor&, const Tensor&, const Tensor&,
                const Tensor&) {
  throw_absent();
}
void rotary_qkv_grad(const Context&, const RotaryShape&, const Tensor&, std::int64_t, const Tensor&,
                     const Tensor&, const Tensor&) {
  throw_absent();
}
void scale(const Context&, const char*, const Tensor&, double, const Tensor&) {
  throw_absent();
}
void scaled_difference(const Context&, const char*, const Tensor&, const Tensor&, const Tensor&,
                       double, double, const Tensor&) {
  throw_absent();
}
void scatter_rows(const Context&, const char*, const Tensor&, const Tensor&, std::int64_t,
                  const Tensor&, bool) {
  throw_absent();
}
void sum(const Context&, const char*, SumKind, const Tensor&, const Tensor&, double, double,
         const Tensor&) {
  throw_absent();
}
void sum_to(const Context&, const Tensor&, const Tensor&) {
  throw_absent();
}
void swap_axes(const Context&, const Tensor&, const AxisSwap&, const Tensor&) {
  throw_absent();
}
void swiglu(const Context&, const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void swiglu_grad(const Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  throw_absent();
}
void unary(const Context&, const char*, UnaryKind, const Tensor&, const Tensor&) {
  throw_absent();
}

}  // namespace penstock::tensor::cuda
