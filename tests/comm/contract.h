// What every backend of comm/ must do, written once. The tests in contract_*.cpp are linked with
// one backend: local_backend.cpp (ranks as threads), mpi_backend.cpp (ranks as processes), or one
// for tensors of a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "tensor/tensor.h"

namespace penstock::comm::testing {

// The numbers of ranks that the backend can run here.
std::vector<int> world_sizes();

// What a backend can do that others cannot, and the other way round.
struct Traits {
  std::string_view kind;   // of point to point
  bool exact_sums = true;  // sums of floating dtypes are those of a serial loop, bit for bit
  bool keeps_nan = true;   // in minimum and maximum
  bool reduces_i16 = true;
};

// One rank: a communicator of all ranks that is under test, and the memory for its tensors.
class TestRank {
 public:
  using MakeMemory = std::function<std::shared_ptr<tensor::Allocator>()>;

  TestRank(World& world, Communicator& all, Traits traits,
           std::shared_ptr<tensor::Allocator> memory, MakeMemory make_memory)
      : world_(world),
        all_(all),
        traits_(traits),
        make_memory_(std::move(make_memory)),
        memory_(std::move(memory)) {}

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  const Traits& traits() const { return traits_; }
  Communicator& all() { return all_; }
  const std::shared_ptr<tensor::Allocator>& memory() const { return memory_; }
  // Another of the same device.
  std::shared_ptr<tensor::Allocator> make_memory() const { return make_memory_(); }

 private:
  World& world_;
  Communicator& all_;
  Traits traits_;
  MakeMemory make_memory_;
  std::shared_ptr<tensor::Allocator> memory_;
};

// Runs fn on this rank of a world with what is under test; collective over it. Of a backend.
void run_rank(World& world, const std::function<void(TestRank&)>& fn);

// Runs fn on each rank of a world of this size. Expectations may be used on every rank.
void run_ranks(int ranks, const std::function<void(TestRank&)>& fn);

// Runs fn for each of world_sizes().
inline void run_all_sizes(const std::function<void(TestRank&)>& fn) {
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

// The elements are copied, whatever the devices; neither waits for more than it must.
tensor::Tensor on_host(const tensor::Tensor& tensor);
void write(const tensor::Tensor& to, const tensor::Tensor& from);

// Elements, dtype and shape, bit for bit.
bool same(const tensor::Tensor& a, const tensor::Tensor& b);

// Reduces in a plain loop over the contributions, host tensors, in this order.
tensor::Tensor serial_reduce(const std::shared_ptr<tensor::Allocator>& allocator,
                             std::span<const tensor::Tensor> contributions, ReduceOp op);
// Is it the sum of the contributions, host tensors of a floating dtype, in any order, each step
// rounded to the dtype?
bool is_sum(const tensor::Tensor& sum, std::span<const tensor::Tensor> contributions);

Message message_of(std::vector<tensor::Tensor> tensors, std::int64_t batch = 0);

}  // namespace penstock::comm::testing
