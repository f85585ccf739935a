// What every backend of comm/ must do, written once. The tests in contract_*.cpp are linked with
// one backend: local_backend.cpp (ranks as threads) or mpi_backend.cpp (ranks as processes).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/world.h"
#include "tensor/tensor.h"

namespace penstock::comm::testing {

// The numbers of ranks that the backend can run here.
std::vector<int> world_sizes();

// Runs fn on each rank of a world of this size. Expectations may be used on every rank.
void run_ranks(int ranks, const std::function<void(World&)>& fn);

// Runs fn for each of world_sizes().
inline void run_all_sizes(const std::function<void(World&)>& fn) {
  for (const int ranks : world_sizes()) run_ranks(ranks, fn);
}

inline constexpr tensor::DType kDTypes[] = {
    tensor::DType::kF64, tensor::DType::kF32, tensor::DType::kF16, tensor::DType::kBF16,
    tensor::DType::kI64, tensor::DType::kI32, tensor::DType::kI16, tensor::DType::kU8,
    tensor::DType::kI8,  tensor::DType::kBool};

// A number that depends on all bits of its arguments.
std::uint64_t scramble(std::uint64_t a, std::uint64_t b);

// Any bit pattern may occur, NaNs too; bool holds 0 and 1.
tensor::Tensor random_bits(const std::shared_ptr<tensor::Allocator>& allocator,
                           const tensor::Shape& shape, tensor::DType dtype, std::uint64_t seed);

// Numbers of very different magnitudes, so that the order of an f32 sum shows in its bits; sums of
// a few stay finite in every dtype.
tensor::Tensor random_numbers(const std::shared_ptr<tensor::Allocator>& allocator,
                              const tensor::Shape& shape, tensor::DType dtype, std::uint64_t seed);

// Elements, dtype and shape, bit for bit.
bool same(const tensor::Tensor& a, const tensor::Tensor& b);

// Reduces in a plain loop over the contributions, in this order.
tensor::Tensor serial_reduce(const std::shared_ptr<tensor::Allocator>& allocator,
                             std::span<const tensor::Tensor> contributions, ReduceOp op);

Message message_of(std::vector<tensor::Tensor> tensors, std::int64_t batch = 0);

}  // namespace penstock::comm::testing
