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

std::vector<double> read_scalars(const Context& context, std::span<const Tensor> scalars) {
  constexpr std::size_t kPlace = sizeof(double);
  const auto count = static_cast<std::int64_t>(scalars.size() * kPlace);
  const Tensor packed = Tensor::empty(context, {count}, DType::kU8);
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (scalars[i].numel() != 1) {
      throw InvalidArgument("[read_scalars] expected one element, got " + scalars[i].to_string());
    }
    context.allocator->copy(packed.raw() + i * kPlace, scalars[i].raw(), scalars[i].nbytes());
  }
  const Tensor read = to_host(Context(make_cpu_allocator()), packed);
  std::vector<double> values;
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    const Tensor value(read.storage(), read.byte_offset() + i * kPlace, {}, scalars[i].dtype());
    values.push_back(value.item());
  }
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
