// The model as a list of layer specs: what every rank holds, and of which it builds its own part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/layer.h"
#include "model/loss.h"

namespace penstock::model {

// Another forward for a tied layer's weights: a head that multiplies by the embedding table.
using TiedForward =
    std::function<std::vector<Tensor>(Layer& layer, Context& context, std::span<const Tensor>)>;

// Whether backward runs a layer's forward again instead of keeping what its operations saved.
enum class Recompute : std::uint8_t {
  kByInterval,  // as StageOptions::recompute_interval says
  kNever,
  kAlways,  // by itself
};

// What a layer does when tensor_parallel.sequence_parallel is on, where each rank of a model group
// has its own part of every sequence (axis 1 of the activations).
enum class SequenceRole : std::uint8_t {
  kNone,    // it knows nothing of parts: refused
  kEnters,  // whole inputs, outputs for the rank's part: the first layer
  kInside,  // works on parts
  kLeaves,  // the rank's part in, outputs for all of the sequence: the last layer
};

// Builds one layer, on the stage that owns it. Copyable.
struct LayerSpec {
  std::string type;  // what partition "type:regex" matches, such as "Linear"
  std::function<std::unique_ptr<Layer>()> build;
  std::string tie_key;  // not empty: shares all parameters with the other layers of this key
  TiedForward forward;  // empty: Layer::forward
  bool frozen = false;  // all parameters of this layer are frozen
  // Names of the inputs that the layer reads with Context::named_input, so that a step that lacks
  // one is refused before it begins.
  std::vector<std::string> named_inputs = {};
  SequenceRole sequence = SequenceRole::kNone;
  Recompute recompute = Recompute::kByInterval;
  // Whether the layer does the same with every micro batch of the same shapes: what it computes
  // depends on its inputs, its weights and its constructor alone, and on nothing else that the host
  // knows, such as Context::micro_batch or a count of its own. Of operations that draw random
  // numbers it may make use. Only then a device may replay it (docs/devices.md).
  bool replayable = false;
};

// A class of layers says that it is replayable by a member: static constexpr bool kReplayable.
template <class L>
constexpr bool is_replayable() {
  if constexpr (requires { L::kReplayable; }) {
    return L::kReplayable;
  } else {
    return false;
  }
}

// layer<Linear>("Linear", 16, 16)
template <class L, class... Args>
LayerSpec layer(std::string type, Args... args) {
  LayerSpec spec{std::move(type), [args...] { return std::make_unique<L>(args...); }, {}, {}};
  spec.replayable = is_replayable<L>();
  return spec;
}

// tied_layer<Embedding>("wte", "Embedding", nullptr, vocabulary, width). Each use of a key must
// build the same parameters; the first use in global layer order owns them. Whether a forward that
// is given is replayable, its owner says.
template <class L, class... Args>
LayerSpec tied_layer(std::string key, std::string type, TiedForward forward, Args... args) {
  LayerSpec spec = layer<L>(std::move(type), args...);
  spec.tie_key = std::move(key);
  spec.replayable = spec.replayable && !forward;
  spec.forward = std::move(forward);
  return spec;
}

// reading_named({"mask"}, lambda("Masked", ...)): a layer that reads inputs by name.
inline LayerSpec reading_named(std::vector<std::string> names, LayerSpec spec) {
  spec.named_inputs = std::move(names);
  return spec;
}

// The layer, with that role.
inline LayerSpec with_sequence(SequenceRole role, LayerSpec spec) {
  spec.sequence = role;
  return spec;
}

struct Module {
  std::vector<LayerSpec> layers;
  // Shared: stateless, and serves ranks on several threads. Null: the last layer's only output is
  // the loss, a scalar.
  std::shared_ptr<const Loss> loss;
};

// "layer 3 (Linear)": how messages name a layer.
std::string layer_label(const Module& module, std::int64_t layer);

// The name of a parameter in the whole model, which no grid changes: "<layer>.<parameter>", or
// "tied_modules.<key>.<parameter>" for a tied layer.
std::string logical_name(const Module& module, std::int64_t layer, const std::string& parameter);

// Throws InvalidArgument, naming the layer, unless the first layer enters, the last one leaves, and
// all others work inside of a region of sequence parallelism.
void check_sequence_roles(const Module& module);

// Builds one layer. Throws InvalidArgument, naming the layer, when its spec cannot.
std::unique_ptr<Layer> build_layer(const Module& module, std::int64_t layer);
// The logical names of all parameters of all layers; a tied one comes with each use. Builds the
// layers, without memory.
std::vector<std::string> parameter_names(const Module& module);

}  // namespace penstock::model
