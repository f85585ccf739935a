#include "model/context.h"

#include <algorithm>

#include "tensor/error.h"

namespace penstock::model {

const tensor::Tensor& Context::named_input(std::string_view name) const {
  const std::string quoted = "\"" + std::string(name) + "\"";
  if (std::ranges::find(declared_inputs, name) == declared_inputs.end()) {
    throw tensor::InvalidArgument("[named_input] " + quoted +
                                  " is read and not declared; declare it in "
                                  "LayerSpec::named_inputs, or for a loss in Loss::named_inputs");
  }
  if (named_inputs != nullptr) {
    const auto found = named_inputs->find(name);
    if (found != named_inputs->end()) return found->second;
  }
  throw tensor::InvalidArgument("[named_input] the micro batch has no input named " + quoted +
                                "; give one to Engine::step, or to the example of a memory plan");
}

}  // namespace penstock::model
