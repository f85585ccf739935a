#include "tensor/transfer.h"

#include <span>

#include "tensor/error.h"

namespace penstock::tensor {

Tensor to_device(const Context& context, const Tensor& x) {
  if (x.device() == context.device) return x.detach();
  if (x.device() != kCpuDevice) {
    throw InvalidArgument("[to_device] expected a tensor on cpu, got " + x.to_string());
  }
  return Tensor::from_bytes(context, x.shape(), x.dtype(), std::span(x.raw(), x.nbytes()));
}

Tensor to_host(const Context& context, const Tensor& x) {
  if (x.device() == kCpuDevice) return x.detach();
  if (x.is_meta()) {
    throw InvalidArgument("[to_host] expected a tensor with elements, got " + x.to_string());
  }
  const Tensor copy = Tensor::empty(context, x.shape(), x.dtype());
  x.storage()->allocator().download(std::span(copy.raw(), copy.nbytes()), x.raw());
  return copy;
}

std::vector<double> read_doubles(const Tensor& x) {
  if (x.is_meta() || x.dtype() != DType::kF64) {
    throw InvalidArgument("[read_doubles] expected elements of f64, got " + x.to_string());
  }
  std::vector<double> values(static_cast<std::size_t>(x.numel()));
  if (values.empty()) return values;
  x.storage()->allocator().download(std::as_writable_bytes(std::span(values)), x.raw());
  return values;
}

void write_elements(const Tensor& to, const Tensor& from) {
  if (from.device() != kCpuDevice || from.shape() != to.shape() || from.dtype() != to.dtype()) {
    throw InvalidArgument("[write_elements] expected a tensor on cpu like " + to.to_string() +
                          ", got " + from.to_string());
  }
  to.storage()->allocator().upload(to.raw(), std::span(from.raw(), from.nbytes()));
}

}  // namespace penstock::tensor
