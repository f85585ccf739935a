// Tensor: a typed, shaped, contiguous view into a storage; cheap to copy, like a pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace penstock::tensor {

struct Context;
class Tape;

// Storage + byte offset + shape + dtype, row-major and contiguous. Copies share elements.
// A Tensor object belongs to one thread; two threads may hold copies of one tensor as long as
// neither writes the elements.
class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; defined() is false

  // New, uninitialised elements from the context's allocator (which decides the device).
  static Tensor empty(const Context& context, const Shape& shape, DType dtype);
  static Tensor empty(const std::shared_ptr<Allocator>& allocator, const Shape& shape, DType dtype);
  // New elements set to zero.
  static Tensor zeros(const Context& context, const Shape& shape, DType dtype);
  // A copy of host values; values.size() must equal shape.numel().
  template <class T>
  static Tensor from(const Context& context, const Shape& shape, std::span<const T> values) {
    return from_bytes(context, shape, dtype_of<T>(), std::as_bytes(values));
  }
  static Tensor from_bytes(const Context& context, const Shape& shape, DType dtype,
                           std::span<const std::byte> bytes);
  // A view into a storage; throws InvalidArgument if it would reach past its end.
  Tensor(std::shared_ptr<Storage> storage, std::size_t byte_offset, const Shape& shape,
         DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int axis) const { return shape_.dim(axis); }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  bool is_meta() const { return device().is_meta(); }

  // The elements. Constness of the handle says nothing about the elements. Throws InvalidArgument
  // when T is not the dtype; null on the meta device.
  template <class T>
  T* data() const {
    if (dtype_ != dtype_of<T>()) throw_dtype(dtype_of<T>());
    return reinterpret_cast<T*>(raw());
  }
  template <class T>
  std::span<T> span() const {
    return {data<T>(), static_cast<std::size_t>(numel())};
  }
  std::byte* raw() const { return storage_->data() + offset_; }
  // The single element of a tensor that has one, as double, whatever its dtype.
  double item() const;

  // The same elements under another shape of equal numel; keeps no tape value (see ops/shape.h for
  // the differentiable form).
  Tensor view(const Shape& shape) const;
  // Rows [begin, end) along the first axis; shares elements; keeps no tape value.
  Tensor rows(std::int64_t begin, std::int64_t end) const;
  // The same tensor, unknown to any tape.
  Tensor detach() const;
  // Shape, dtype and tape value without the elements: what an output leaves behind once it was
  // sent, for Tape::seed.
  Tensor shell() const;

  const std::shared_ptr<Storage>& storage() const { return storage_; }
  std::size_t byte_offset() const { return offset_; }
  // True when nobody else looks into the storage and it was never sent: in-place work is allowed.
  bool exclusive() const { return storage_.use_count() == 1 && !storage_->sealed(); }

  // "f32 [4, 16] on cpu"
  std::string to_string() const;

 private:
  friend class Tape;
  [[noreturn]] void throw_dtype(DType wanted) const;

  std::shared_ptr<Storage> storage_;
  std::size_t offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::kF32;
  // Which tape knows this tensor, in which of its lives, and as which value; set by the tape alone
  // and never followed.
  const Tape* tape_ = nullptr;
  std::uint32_t generation_ = 0;
  std::int32_t value_ = -1;
};

}  // namespace penstock::tensor
