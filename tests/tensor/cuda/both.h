// Runs a kernel on the CPU and on an emulated CUDA device, for the tests of this folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/cuda/cuda.h"
#include "tensor/ops/cast.h"
#include "tests/cuda_emulation/emulation.h"
#include "tests/support/tensors.h"

namespace penstock::tensor {

using penstock::testing::cpu_context;
using penstock::testing::uniform;
using penstock::testing::values;

// New tensors of a device hold poison until they are written, so what a kernel leaves out shows.
class OnBothDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda_emulation::start();
    make_device();
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(cuda_emulation::fault(), "");
    EXPECT_EQ(cuda_emulation::leftovers(), std::vector<std::string>());
    cuda_emulation::discard();
  }
  void make_device() { device_ = std::make_unique<Context>(cuda::make_cuda_allocator({})); }
  void start_again(const cuda_emulation::Options& options) {
    device_.reset();
    cuda_emulation::start(options);
    make_device();
  }

  Context& cpu() { return cpu_; }
  Context& device() { return *device_; }

  Tensor numbers(const Shape& shape, DType dtype, double low, double high, std::uint64_t seed = 1) {
    return uniform(cpu_, shape, dtype, low, high, seed);
  }
  Tensor to_device(const Tensor& x) {
    if (!x.defined()) return {};
    return Tensor::from_bytes(*device_, x.shape(), x.dtype(), {x.raw(), x.nbytes()});
  }
  Tensor to_cpu(const Tensor& x) {
    Tensor result = Tensor::empty(cpu_, x.shape(), x.dtype());
    device_->allocator->download({result.raw(), result.nbytes()}, x.raw());
    return result;
  }
  // A tensor of the device like one of the CPU's.
  Tensor like(const Tensor& x) {
    return x.defined() ? Tensor::empty(*device_, x.shape(), x.dtype()) : Tensor();
  }

  std::vector<double> doubles(const Tensor& x) {
    return values<double>(cast(cpu_, x, DType::kF64));
  }
  // |got − wanted| ≤ tolerance · max(|wanted|, scale)
  void expect_near(const Tensor& on_device, const Tensor& on_cpu, double tolerance,
                   const std::string& what, double scale = 1.0) {
    const std::vector<double> got = doubles(to_cpu(on_device)), wanted = doubles(on_cpu);
    ASSERT_EQ(got.size(), wanted.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(wanted[i]) && std::isnan(got[i])) continue;
      ASSERT_LE(std::fabs(got[i] - wanted[i]), tolerance * std::max(std::fabs(wanted[i]), scale))
          << what << ", element " << i << ": got " << got[i] << ", the CPU " << wanted[i];
    }
  }

 private:
  Context cpu_ = cpu_context();
  std::unique_ptr<Context> device_;
};

// How far results of a dtype may be from the CPU's.
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-12;
    case DType::kF32:
      return 2e-5;
    case DType::kF16:
      return 2e-3;
    default:
      return 1.6e-2;
  }
}

inline constexpr DType kFloating[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

}  // namespace penstock::tensor
