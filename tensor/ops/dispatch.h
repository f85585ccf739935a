// Which kernel an operation runs. For the operations' .cpp files; nothing here is part of the
// public interface.
#pragma once

#include "tensor/context.h"
#include "tensor/device.h"

namespace penstock::tensor {

// Calls what computes on the context's device; nothing on the meta device, which computes nothing.
//
//   on_device(context, [&] { cpu::gelu(context, x, y); }, [&] { cuda::gelu(context, x, y); });
template <class Cpu, class Cuda>
void on_device(const Context& context, const Cpu& cpu, const Cuda& cuda) {
  switch (context.device.type) {
    case DeviceType::kCpu:
      return cpu();
    case DeviceType::kCuda:
      return cuda();
    case DeviceType::kMeta:
      return;
  }
}

}  // namespace penstock::tensor
