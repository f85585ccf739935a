// What a layer's forward sees beside its inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "model/parameter.h"
#include "model/split.h"
#include "tensor/context.h"
#include "tensor/ops/index_part.h"
#include "tensor/tape.h"
#include "tensor/tensor.h"

namespace penstock::comm {
class Communicator;
}

namespace penstock::model {

// Tensors of a micro batch that layers of any stage read by name, beside those that go from layer
// to layer.
using NamedTensors = std::map<std::string, tensor::Tensor, std::less<>>;

// Extends the context of operations with the place of this forward in the model and the run. The
// Stage fills it in before each layer. `random` is keyed for the layer; operations that draw count
// random.call up.
struct Context : tensor::Context {
  using tensor::Context::Context;

  bool training = true;          // false in evaluation: dropout is off
  std::int64_t micro_batch = 0;  // within the batch, of this replica
  // Global sample id of each row of the micro batch; what random numbers of a row are keyed by.
  std::span<const std::int64_t> sample_ids;
  const NamedTensors* named_inputs = nullptr;    // of the micro batch; null: there are none
  std::span<const std::string> declared_inputs;  // the names that the layer, or the loss, declares
  std::int64_t layer = 0;                        // global layer index
  ModelAxis model;  // the tensor-parallel peers, and this rank's place among them
  // Theirs; null when there are none, and on the meta device, where nothing is communicated.
  comm::Communicator* model_group = nullptr;
  // Whether the last layer may give logits of which each rank of the model group has some classes
  // alone: the loss can work with them, and nobody else wants them. Such a layer sets `classes`.
  bool may_split_classes = false;
  std::optional<tensor::IndexPart> classes;
  // The accumulators of the layer use that runs now, by Parameter::slot; empty when no gradient is
  // wanted.
  std::span<tensor::GradSlot> slots;

  // The micro batch's tensor of this name, a constant that no gradient goes to. The name is one
  // that the layer declares (LayerSpec::named_inputs) or the loss (Loss::named_inputs). Throws
  // InvalidArgument for another one, and where the micro batch has none of this name.
  const tensor::Tensor& named_input(std::string_view name) const;

  // The parameter's value, known to the tape so that it receives its gradient. A layer calls this
  // for each weight it uses, each time.
  tensor::Tensor weight(const Parameter& parameter) {
    if (tape == nullptr) return parameter.value;
    const bool train = parameter.trainable && !slots.empty();
    return tape->weight(parameter.value, train ? &slots[parameter.slot] : nullptr);
  }
};

}  // namespace penstock::model
