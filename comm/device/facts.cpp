#include "comm/device/facts.h"

#include <algorithm>
#include <array>
#include <span>

#include "comm/error.h"

namespace penstock::comm::device {

namespace {

using tensor::Shape;
using tensor::Tensor;

constexpr std::int64_t kMagic = 0x504b'4643;

void put_shape(std::vector<std::int64_t>& numbers, const Shape& shape) {
  numbers.push_back(shape.rank());
  for (const std::int64_t dim : shape.dims()) numbers.push_back(dim);
}

class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> numbers) : numbers_(numbers) {}

  // In [0, limit).
  std::int64_t get(std::int64_t limit) {
    const std::int64_t number = get();
    if (number < 0 || number >= limit) fail();
    return number;
  }
  std::int64_t get() {
    if (numbers_.empty()) fail();
    const std::int64_t number = numbers_.front();
    numbers_ = numbers_.subspan(1);
    return number;
  }
  Shape get_shape() {
    std::array<std::int64_t, Shape::kMaxRank> dims{};
    const auto rank = static_cast<std::size_t>(get(Shape::kMaxRank + 1));
    for (std::size_t axis = 0; axis < rank; ++axis) dims[axis] = get();
    return Shape(std::span(dims.data(), rank));
  }
  [[noreturn]] static void fail() {
    throw CommError(
        "[comm] expected what a message says about its tensors, got something else; do all ranks "
        "run the same build, with the same transport?");
  }

 private:
  std::span<const std::int64_t> numbers_;
};

constexpr std::int64_t kMostTensors = std::int64_t{1} << 20;

}  // namespace

Tensor encode(const MessageFacts& facts, const std::shared_ptr<tensor::Allocator>& host_memory) {
  std::vector<std::int64_t> numbers{kMagic, facts.number,
                                    static_cast<std::int64_t>(facts.tensors.size())};
  for (std::size_t i = 0; i < facts.tensors.size(); ++i) {
    const TensorFacts& each = facts.tensors[i];
    numbers.push_back(each.on_device ? 1 : 0);
    numbers.push_back(static_cast<std::int64_t>(each.dtype));
    numbers.push_back(facts.needs_grad[i]);
    put_shape(numbers, each.shape);
  }
  numbers.push_back(static_cast<std::int64_t>(facts.whole_shapes.size()));
  for (const Shape& shape : facts.whole_shapes) put_shape(numbers, shape);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const Tensor encoded = Tensor::empty(host_memory, {count}, tensor::DType::kI64);
  std::ranges::copy(numbers, encoded.data<std::int64_t>());
  return encoded;
}

MessageFacts decode(const Tensor& encoded) {
  if (encoded.dtype() != tensor::DType::kI64) Reader::fail();
  Reader reader(encoded.span<std::int64_t>());
  if (reader.get() != kMagic) Reader::fail();
  MessageFacts facts;
  facts.number = reader.get();
  for (auto left = reader.get(kMostTensors); left > 0; --left) {
    TensorFacts& each = facts.tensors.emplace_back();
    each.on_device = reader.get(2) != 0;
    each.dtype = static_cast<tensor::DType>(reader.get(tensor::kNumDTypes));
    facts.needs_grad.push_back(static_cast<std::uint8_t>(reader.get(256)));
    each.shape = reader.get_shape();
  }
  for (auto left = reader.get(kMostTensors); left > 0; --left) {
    facts.whole_shapes.push_back(reader.get_shape());
  }
  return facts;
}

}  // namespace penstock::comm::device
