#include "tools/ckpt/compare_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/allocator.h"

namespace penstock::tools {

namespace {

using tensor::DType;
using tensor::Tensor;

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // elements

template <class T>
void append(const Tensor& from, std::vector<double>& to) {
  for (const T value : from.span<T>()) to.push_back(static_cast<double>(value));
}

// Elements [begin, end) as doubles.
std::vector<double> read_block(const checkpoint::Reader& reader, const std::string& name,
                               std::int64_t begin, std::int64_t end) {
  const checkpoint::TensorInfo& info = reader.info(name);
  const bool floating = is_floating(info.dtype);
  const Tensor block = Tensor::empty(tensor::make_cpu_allocator(), {end - begin},
                                     floating ? DType::kF64 : info.dtype);
  reader.read(name, checkpoint::Region::whole(info.shape).elements(begin, end), block,
              checkpoint::Cast::kFloating);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(end - begin));
  switch (block.dtype()) {
    case DType::kBool:
      append<bool>(block, values);
      break;
    case DType::kU8:
      append<std::uint8_t>(block, values);
      break;
    case DType::kI8:
      append<std::int8_t>(block, values);
      break;
    case DType::kI16:
      append<std::int16_t>(block, values);
      break;
    case DType::kI32:
      append<std::int32_t>(block, values);
      break;
    case DType::kI64:
      append<std::int64_t>(block, values);
      break;
    default:
      append<double>(block, values);
  }
  return values;
}

}  // namespace

TensorDifference compare_tensors(const checkpoint::Reader& a, const checkpoint::Reader& b,
                                 const std::string& name) {
  TensorDifference result;
  double largest = 0.0;
  const std::int64_t count = a.info(name).shape.numel();
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, count);
    const std::vector<double> left = read_block(a, name, begin, end);
    const std::vector<double> right = read_block(b, name, begin, end);
    for (std::size_t i = 0; i < left.size(); ++i) {
      for (const double value : {left[i], right[i]}) {
        if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
      }
      if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
      ++result.elements;
      const double difference = std::fabs(left[i] - right[i]);
      result.absolute =
          std::max(result.absolute,
                   std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
    }
  }
  if (result.elements > 0) {
    result.relative =
        largest > 0.0 ? result.absolute / largest : std::numeric_limits<double>::infinity();
  }
  return result;
}

}  // namespace penstock::tools
