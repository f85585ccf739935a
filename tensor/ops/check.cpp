#include "tensor/ops/check.h"

#include <algorithm>

namespace penstock::tensor {

void check_placed(const char* op, const Context& context,
                  std::initializer_list<const Tensor*> all) {
  for (const Tensor* tensor : all) {
    if (!tensor->defined()) throw_invalid(op, "a defined tensor", tensor->to_string());
    if (tensor->device() != context.device) {
      throw_invalid(op, "tensors on " + context.device.to_string() + ", the context's device",
                    tensor->to_string());
    }
  }
}

void check_floating(const char* op, const Context& context,
                    std::initializer_list<const Tensor*> all) {
  check_placed(op, context, all);
  const Tensor& first = **all.begin();
  for (const Tensor* tensor : all) {
    if (!is_floating(tensor->dtype())) {
      throw_invalid(op, "floating-point elements", tensor->to_string());
    }
    if (tensor->dtype() != first.dtype()) {
      throw_invalid(
          op, "tensors of one dtype, " + std::string(name_of(first.dtype())),
          first.to_string() + " and " + tensor->to_string() + "; cast one of them (ops/cast.h)");
    }
  }
}

void check_same_shape(const char* op, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) {
    throw_invalid(op, "equal shapes", a.shape().to_string() + " and " + b.shape().to_string());
  }
}

bool is_trailing(const Shape& small, const Shape& large) {
  const auto few = small.dims();
  const auto many = large.dims();
  return few.size() <= many.size() && std::ranges::equal(few, many.last(few.size()));
}

void check_writable(const char* op, const Tensor& target) {
  if (target.storage()->sealed()) {
    throw_invalid(op, "a tensor that may be written",
                  target.to_string() + ", which was given to send and is immutable since");
  }
}

void throw_invalid(const char* op, const std::string& expected, const std::string& got) {
  throw InvalidArgument("[" + std::string(op) + "] expected " + expected + ", got " + got);
}

void throw_cpu_dtype(const char* op, DType dtype) {
  throw Unsupported("[" + std::string(op) + "] expected floating-point elements to compute with, " +
                    "got " + std::string(name_of(dtype)) + "; cast first (ops/cast.h)");
}

}  // namespace penstock::tensor
