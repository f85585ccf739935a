// Moving whole tensors between the host and a device.
#pragma once

#include <span>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace penstock::tensor {

// x itself when it lies on the context's device, else a copy of a host tensor there. Unknown to any
// tape. Does not wait.
Tensor to_device(const Context& context, const Tensor& x);

// x itself when it lies in host memory, else a copy in memory of the context, which is the host's.
// Waits until the device has computed it. Unknown to any tape.
Tensor to_host(const Context& context, const Tensor& x);

// The elements of a tensor of f64, of any device. Waits until the device has computed them.
std::vector<double> read_doubles(const Tensor& x);

// The single element of each tensor, whatever its dtype; all are of the context. Waits for a device
// once.
std::vector<double> read_scalars(const Context& context, std::span<const Tensor> scalars);

// Overwrites the elements of a tensor, of any device, by those of a host tensor of its shape and
// dtype.
void write_elements(const Tensor& to, const Tensor& from);

}  // namespace penstock::tensor
