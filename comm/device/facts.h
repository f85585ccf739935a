// Facts: what a message says about its tensors when these travel another way than it does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/message.h"
#include "tensor/allocator.h"

namespace penstock::comm::device {

struct TensorFacts {
  bool on_device = false;  // else it comes along with the message
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;
};

struct MessageFacts {
  std::int64_t number = 0;  // on its channel
  std::vector<TensorFacts> tensors;
  std::vector<std::uint8_t> needs_grad;
  std::vector<tensor::Shape> whole_shapes;
};

// A tensor on the host.
tensor::Tensor encode(const MessageFacts& facts,
                      const std::shared_ptr<tensor::Allocator>& host_memory);
// Throws CommError when it holds something else.
MessageFacts decode(const tensor::Tensor& encoded);

}  // namespace penstock::comm::device
