// Contexts and tensors for tests.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/context.h"
#include "tensor/ops/cast.h"
#include "tensor/tensor.h"

namespace penstock::testing {

inline tensor::Context cpu_context(int threads = 1) {
  tensor::Context context(tensor::make_cpu_allocator());
  context.threads = threads;
  return context;
}

inline tensor::Context meta_context() {
  return tensor::Context(tensor::make_meta_allocator());
}

template <class T>
tensor::Tensor make(const tensor::Context& context, const tensor::Shape& shape,
                    const std::vector<T>& values) {
  return tensor::Tensor::from(context, shape, std::span<const T>(values));
}

template <class T>
std::vector<T> values(const tensor::Tensor& x) {
  return {x.data<T>(), x.data<T>() + x.numel()};
}

// Evenly spread numbers in [low, high), from the standard library's generator, not from ours.
inline tensor::Tensor uniform(tensor::Context& context, const tensor::Shape& shape,
                              tensor::DType dtype, double low, double high,
                              std::uint64_t seed = 1) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> numbers(static_cast<std::size_t>(shape.numel()));
  for (double& number : numbers) number = draw(generator);
  return tensor::cast(context, make(context, shape, numbers), dtype);
}

}  // namespace penstock::testing
