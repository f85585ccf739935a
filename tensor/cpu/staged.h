// 16-bit elements for kernels that compute in float: they are converted a block at a time, in the
// cache, and results are rounded once when they are stored. For f32 and f64 everything here is the
// tensor's own memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tensor/context.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/workspace.h"
#include "tensor/dtype.h"
#include "tensor/parallel.h"
#include "tensor/tensor.h"

namespace penstock::tensor::cpu {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

// What a kernel computes in for elements of T.
template <class T>
using Compute = std::conditional_t<kIsHalf<T>, float, T>;

inline constexpr std::size_t kStage = 2048;  // elements of a block: 8 KiB for each operand

// n elements to read: x itself, or their floats in the buffer.
template <class T>
const Compute<T>* stage(const T* x, [[maybe_unused]] float* buffer,
                        [[maybe_unused]] std::size_t n) {
  if constexpr (kIsHalf<T>) {
    widen(x, buffer, n);
    return buffer;
  } else {
    return x;
  }
}

// Where n results are written before unstage() takes them to out: out itself, or the buffer.
template <class T>
Compute<T>* stage_result([[maybe_unused]] T* out, [[maybe_unused]] float* buffer) {
  if constexpr (kIsHalf<T>) {
    return buffer;
  } else {
    return out;
  }
}
template <class T>
void unstage([[maybe_unused]] const Compute<T>* result, [[maybe_unused]] T* out,
             [[maybe_unused]] std::size_t n) {
  if constexpr (kIsHalf<T>) narrow(result, out, n);
}

// The buffer for a number of elements too large for the stack; nothing for f32 and f64.
struct NoBuffer {
  NoBuffer(const Context&, std::int64_t) {}
  float* data() const { return nullptr; }
};
template <class T>
using StageBuffer = std::conditional_t<kIsHalf<T>, Workspace<float>, NoBuffer>;

// One element.
template <class T>
Compute<T> load_one(const T* x) {
  float buffer = 0;
  return *stage(x, &buffer, 1);
}
template <class T>
void store_one(Compute<T> value, T* out) {
  if constexpr (kIsHalf<T>) {
    narrow(&value, out, 1);
  } else {
    *out = value;
  }
}

// kernel(n, out, inputs…) over n elements; where any of them has 16 bits, over blocks, with floats
// in its place. out may be one of the inputs.
template <class Kernel, class Out, class... In>
void in_blocks(std::size_t n, const Kernel& kernel, Out* out, const In*... inputs) {
  if constexpr (kIsHalf<Out> || (kIsHalf<In> || ...)) {
    float buffers[1 + sizeof...(In)][kStage];
    for (std::size_t i = 0; i < n; i += kStage) {
      const std::size_t size = std::min(kStage, n - i);
      Compute<Out>* to = stage_result(out + i, buffers[0]);
      const auto run = [&]<std::size_t... Index>(std::index_sequence<Index...>) {
        kernel(size, to, stage(inputs + i, buffers[1 + Index], size)...);
      };
      run(std::index_sequence_for<In...>());
      unstage(to, out + i, size);
    }
  } else {
    kernel(n, out, inputs...);
  }
}

// visit(first, count) for the parts of a tensor that threads convert.
template <class Visit>
void for_stages(const Context& context, std::int64_t size, const Visit& visit) {
  parallel_chunks(context, size, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    visit(begin, static_cast<std::size_t>(end - begin));
  });
}

// A whole tensor to read, for operations whose operands are small or read many times over.
template <class T>
class Staged {
 public:
  Staged(const Context& context, const Tensor& x)
      : buffer_(context, x.numel()), data_(stage_result(x.data<T>(), buffer_.data())) {
    if constexpr (kIsHalf<T>) {
      const T* from = x.data<T>();
      for_stages(context, x.numel(),
                 [&](std::int64_t i, std::size_t n) { widen(from + i, buffer_.data() + i, n); });
    }
  }
  const Compute<T>* data() const { return data_; }

 private:
  StageBuffer<T> buffer_;
  const Compute<T>* data_;
};

// A whole tensor to write. What it held is there only with keep; store() rounds.
template <class T>
class StagedResult {
 public:
  StagedResult(const Context& context, const Tensor& out, [[maybe_unused]] bool keep)
      : context_(context),
        out_(out.data<T>()),
        size_(out.numel()),
        buffer_(context, size_),
        data_(stage_result(out_, buffer_.data())) {
    if constexpr (kIsHalf<T>) {
      if (!keep) return;
      for_stages(context_, size_,
                 [this](std::int64_t i, std::size_t n) { widen(out_ + i, data_ + i, n); });
    }
  }
  Compute<T>* data() const { return data_; }
  void store() const {
    for_stages(context_, kIsHalf<T> ? size_ : 0,
               [this](std::int64_t i, std::size_t n) { unstage(data_ + i, out_ + i, n); });
  }

 private:
  const Context& context_;
  T* out_;
  std::int64_t size_;
  StageBuffer<T> buffer_;
  Compute<T>* data_;
};

// Calls function with an element of the dtype of `out`, a result for elements of T: T itself, or
// float for the gradient of a 16-bit weight whose accumulator is f32.
template <class T, class Function>
void for_result_dtype(const Tensor& out, Function&& function) {
  if constexpr (kIsHalf<T>) {
    if (out.dtype() == DType::kF32) return function(float{});
  }
  function(T{});
}

}  // namespace penstock::tensor::cpu
