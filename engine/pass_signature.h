// PassSignature: all that a captured pass takes for granted. One that differs in any of it must not
// be replayed.
#pragma once

#include <string>
#include <vector>

#include "engine/pipe_buffers.h"
#include "model/context.h"
#include "model/stage.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace penstock::engine {

struct PassSignature {
  struct Form {
    std::string name;  // of named inputs
    tensor::Shape shape;
    tensor::DType dtype = tensor::DType::kF32;
    bool needs_grad = false;
    bool operator==(const Form&) const = default;
  };

  std::vector<Form> inputs, labels, named;
  const PipeBuffer* buffer = nullptr;  // whose tape knows the outputs
  bool computes_loss = false;
  std::vector<const void*> memory;  // of the stage's weights and gradients

  bool operator==(const PassSignature&) const = default;
};

// Of the forward pass of the buffer's micro batch, and of the backward passes that belong to it.
PassSignature signature_of(model::Stage& stage, const model::Context& context,
                           const PipeBuffer& buffer, bool computes_loss);

// Which of the stage's gradients have nothing in them yet, so that a pass overwrites them.
std::vector<bool> empty_gradients(model::Stage& stage);
void set_empty_gradients(model::Stage& stage, const std::vector<bool>& empty);

}  // namespace penstock::engine
