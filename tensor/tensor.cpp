#include "tensor/tensor.h"

#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "tensor/context.h"
#include "tensor/error.h"
#include "tensor/half.h"

namespace penstock::tensor {

namespace {

std::size_t bytes_of(const Shape& shape, DType dtype) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.numel(), static_cast<std::int64_t>(size_of(dtype)), &bytes)) {
    throw InvalidArgument("[tensor] expected fewer than 2^63 bytes, got the shape " +
                          shape.to_string() + " of " + std::string(name_of(dtype)));
  }
  return static_cast<std::size_t>(bytes);
}

template <class T>
double load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return to_float(value);
  } else {
    return static_cast<double>(value);
  }
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, std::size_t byte_offset, const Shape& shape,
               DType dtype)
    : storage_(std::move(storage)), offset_(byte_offset), shape_(shape), dtype_(dtype) {
  const std::size_t bytes = bytes_of(shape, dtype);
  if (offset_ > storage_->bytes() || bytes > storage_->bytes() - offset_) {
    throw InvalidArgument("[tensor] expected a view inside of a storage of " +
                          std::to_string(storage_->bytes()) + " bytes, got " +
                          std::to_string(bytes) + " bytes at offset " + std::to_string(offset_));
  }
}

Tensor Tensor::empty(const std::shared_ptr<Allocator>& allocator, const Shape& shape, DType dtype) {
  Tensor result;
  result.storage_ = std::make_shared<Storage>(allocator, bytes_of(shape, dtype));
  result.shape_ = shape;
  result.dtype_ = dtype;
  return result;
}

Tensor Tensor::empty(const Context& context, const Shape& shape, DType dtype) {
  return empty(context.allocator, shape, dtype);
}

Tensor Tensor::zeros(const Context& context, const Shape& shape, DType dtype) {
  Tensor result = empty(context, shape, dtype);
  context.allocator->zero(result.raw(), result.nbytes());
  return result;
}

Tensor Tensor::from_bytes(const Context& context, const Shape& shape, DType dtype,
                          std::span<const std::byte> bytes) {
  if (bytes.size() != bytes_of(shape, dtype)) {
    throw InvalidArgument("[tensor] expected " + std::to_string(bytes_of(shape, dtype)) +
                          " bytes for " + std::string(name_of(dtype)) + " " + shape.to_string() +
                          ", got " + std::to_string(bytes.size()));
  }
  Tensor result = empty(context, shape, dtype);
  context.allocator->upload(result.raw(), bytes);
  return result;
}

double Tensor::item() const {
  if (!defined() || numel() != 1 || is_meta()) {
    throw InvalidArgument("[tensor] item() expected one element on the host, got " + to_string());
  }
  std::byte bytes[sizeof(double)];
  storage_->allocator().download(std::span(bytes, size_of(dtype_)), raw());
  switch (dtype_) {
    case DType::kF64:
      return load<double>(bytes);
    case DType::kF32:
      return load<float>(bytes);
    case DType::kF16:
      return load<F16>(bytes);
    case DType::kBF16:
      return load<BF16>(bytes);
    case DType::kI64:
      return load<std::int64_t>(bytes);
    case DType::kI32:
      return load<std::int32_t>(bytes);
    case DType::kI16:
      return load<std::int16_t>(bytes);
    case DType::kU8:
      return load<std::uint8_t>(bytes);
    case DType::kI8:
      return load<std::int8_t>(bytes);
    case DType::kBool:
      return load<std::uint8_t>(bytes) != 0 ? 1.0 : 0.0;
  }
  throw InternalError("[tensor] unknown dtype");
}

Tensor Tensor::view(const Shape& shape) const {
  if (shape.numel() != numel()) {
    throw InvalidArgument("[tensor] view expected " + std::to_string(numel()) + " elements as in " +
                          shape_.to_string() + ", got " + shape.to_string());
  }
  Tensor result = detach();
  result.shape_ = shape;
  return result;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  if (shape_.rank() == 0 || begin < 0 || begin > end || end > shape_[0]) {
    throw InvalidArgument("[tensor] rows [" + std::to_string(begin) + ", " + std::to_string(end) +
                          ") are outside of the shape " + shape_.to_string());
  }
  Tensor result = detach();
  const std::int64_t row = shape_[0] == 0 ? 0 : numel() / shape_[0];
  result.offset_ += static_cast<std::size_t>(begin * row) * size_of(dtype_);
  result.shape_ = shape_.with_dim(0, end - begin);
  return result;
}

Tensor Tensor::detach() const {
  Tensor result = *this;
  result.tape_ = nullptr;
  result.value_ = -1;
  return result;
}

Tensor Tensor::shell() const {
  Tensor result = *this;
  result.storage_.reset();
  result.offset_ = 0;
  return result;
}

std::string Tensor::to_string() const {
  if (!defined()) return "an undefined tensor";
  return std::string(name_of(dtype_)) + " " + shape_.to_string() + " on " + device().to_string();
}

void Tensor::throw_dtype(DType wanted) const {
  throw InvalidArgument("[tensor] data expected " + std::string(name_of(dtype_)) +
                        ", the tensor's dtype, got a request for " + std::string(name_of(wanted)));
}

}  // namespace penstock::tensor
