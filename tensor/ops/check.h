// Checks that every operation makes before it computes, so that errors read alike. For the
// operations' .cpp files; nothing here is part of the public interface.
#pragma once

#include <initializer_list>
#include <string>

#include "tensor/context.h"
#include "tensor/error.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// Every tensor is defined and lies on the device where the context computes.
void check_placed(const char* op, const Context& context, std::initializer_list<const Tensor*> all);

// The tensors are floating and share one dtype, and check_placed holds.
void check_floating(const char* op, const Context& context,
                    std::initializer_list<const Tensor*> all);

void check_same_shape(const char* op, const Tensor& a, const Tensor& b);

// Whether `small` is the last dimensions of `large`, all of them included.
bool is_trailing(const Shape& small, const Shape& large);

// The storage may be written: it was not given to send.
void check_writable(const char* op, const Tensor& target);

// "[op] expected …, got …" as InvalidArgument.
[[noreturn]] void throw_invalid(const char* op, const std::string& expected,
                                const std::string& got);

// Unsupported: the CPU computes with floating-point elements alone.
[[noreturn]] void throw_cpu_dtype(const char* op, DType dtype);

// Calls function with an element of a floating dtype. For those of 16 bits see cpu/staged.h.
template <class Function>
void for_cpu_dtype(const char* op, DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF64:
      return function(double{});
    case DType::kF32:
      return function(float{});
    case DType::kF16:
      return function(F16{});
    case DType::kBF16:
      return function(BF16{});
    default:
      throw_cpu_dtype(op, dtype);
  }
}

}  // namespace penstock::tensor
