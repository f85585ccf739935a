// How a Stage is made: layers, names, ties, memory, initial weights.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "model/name_patterns.h"
#include "model/stage.h"
#include "model/stage_layout.h"
#include "tensor/error.h"
#include "tensor/ops/fill.h"
#include "tensor/ops/init.h"

namespace penstock::model {

namespace {

std::string describe(std::span<Parameter* const> parameters) {
  std::string text;
  for (const Parameter* parameter : parameters) {
    if (!text.empty()) text += ", ";
    text += parameter->name + " " + parameter->shape.to_string();
  }
  return text.empty() ? "no parameters" : text;
}

bool same_declarations(std::span<Parameter* const> a, std::span<Parameter* const> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Parameter* left, const Parameter* right) {
                      return left->name == right->name && left->shape == right->shape &&
                             left->split == right->split;
                    });
}

void draw(tensor::Context& context, const InitRule& rule, Tensor target,
          const tensor::InitKey& key) {
  switch (rule.kind) {
    case InitRule::Kind::kConstant:
      return tensor::fill(context, target, rule.a);
    case InitRule::Kind::kNormal:
      return tensor::init_normal(context, target, key, rule.a, rule.b);
    case InitRule::Kind::kUniform:
      return tensor::init_uniform(context, target, key, rule.a, rule.b);
  }
}

// Each element as it would be in the whole parameter.
void draw_weight(tensor::Context& context, const StageParameter& entry, tensor::InitKey key) {
  const Parameter& parameter = *entry.parameter;
  const Shard& shard = entry.shard;
  if (shard.is_everything()) return draw(context, parameter.init, parameter.value, key);
  const auto dims = parameter.shape.dims();
  const auto axis = dims.begin() + shard.axis;
  const auto product = std::multiplies<>();
  const std::int64_t outer = std::accumulate(dims.begin(), axis, std::int64_t{1}, product);
  const std::int64_t inner = std::accumulate(axis + 1, dims.end(), std::int64_t{1}, product);
  const tensor::Tensor flat = parameter.value.view({parameter.value.numel()});
  for (std::int64_t row = 0; row < outer; ++row) {
    for (const Shard::Range& range : shard.ranges) {
      const std::int64_t begin = (row * shard.shape.dim(shard.axis) + range.own) * inner;
      key.first_element = (row * parameter.shape.dim(shard.axis) + range.whole) * inner;
      draw(context, parameter.init, flat.rows(begin, begin + range.count * inner), key);
    }
  }
}

}  // namespace

class Stage::Builder {
 public:
  Builder(Stage& stage, const Module& module, const StageOptions& options,
          std::span<const std::unique_ptr<Stage>> earlier)
      : stage_(stage),
        module_(module),
        options_(options),
        earlier_(earlier),
        frozen_(options.frozen_patterns) {}

  void run(const tensor::Context& context) {
    check_range();
    check_tie_keys();
    check_patterns();
    build_layers();
    cut_into_parts();
    list_parameters(/*tied=*/false);
    list_parameters(/*tied=*/true);
    borrow_weights();
    const StageLayout layout = lay_out(stage_.parameters_, stage_.slot_info_, options_);
    place_weights(context, layout);
    place_grads(context, layout);
    draw_weights(context);
  }

 private:
  const LayerSpec& spec(std::int64_t layer) const {
    return module_.layers[static_cast<std::size_t>(layer)];
  }
  bool is_tied(const Use& use) const { return !spec(use.layer).tie_key.empty(); }

  void check_range() const {
    const std::int64_t count = std::ssize(module_.layers);
    if (0 <= stage_.begin_ && stage_.begin_ <= stage_.end_ && stage_.end_ <= count) return;
    throw tensor::InvalidArgument(
        "[stage] expected a range of the model's " + std::to_string(count) + " layers, got [" +
        std::to_string(stage_.begin_) + ", " + std::to_string(stage_.end_) + ")");
  }

  // A dot would let two keys and parameters make one logical name: "a.b" + "c", "a" + "b.c".
  void check_tie_keys() const {
    for (std::int64_t i = 0; i < std::ssize(module_.layers); ++i) {
      if (spec(i).tie_key.find_first_of("./") == std::string::npos) continue;
      throw tensor::InvalidArgument(layer_label(module_, i) +
                                    ": expected a tie key without . and /, "
                                    "got \"" +
                                    spec(i).tie_key + "\"");
    }
  }

  void check_patterns() const {
    if (frozen_.empty()) return;
    frozen_.check_used(parameter_names(module_));
  }

  void build_layers() {
    for (std::int64_t i = stage_.begin_; i < stage_.end_; ++i) {
      Use use{i, layer_label(module_, i), build_layer(module_, i), spec(i).forward, 0,
              0, spec(i).named_inputs};
      if (is_tied(use)) share_declarations(use);
      for (Parameter* parameter : use.object->parameters()) {
        const bool frozen =
            spec(i).frozen || frozen_.matches(logical_name(module_, i, parameter->name));
        parameter->trainable = parameter->trainable && !frozen;
      }
      stage_.uses_.push_back(std::move(use));
    }
  }

  void cut_into_parts() {
    std::int64_t room = 0;  // layers that may still join the last part
    for (std::size_t i = 0; i < stage_.uses_.size(); ++i) {
      const Recompute choice = spec(stage_.uses_[i].layer).recompute;
      const bool by_interval = choice == Recompute::kByInterval && options_.recompute_interval > 0;
      if (by_interval && room > 0) {
        stage_.parts_.back().end = i + 1;
        --room;
        continue;
      }
      stage_.parts_.push_back({i, i + 1, by_interval || choice == Recompute::kAlways});
      room = by_interval ? options_.recompute_interval - 1 : 0;
    }
  }

  // The first use of a tie in the whole model, even on another stage, says how its weights start
  // and whether they train. Building a layer to ask allocates no weights.
  void share_declarations(Use& use) {
    const std::int64_t first = first_use(use.layer);
    if (first == use.layer) return;
    const std::unique_ptr<Layer> owner = build_layer(module_, first);
    if (spec(first).frozen != spec(use.layer).frozen) {
      throw_tie(use.layer, first, "both or neither to be frozen", "one that is");
    }
    if (!same_declarations(owner->parameters(), use.object->parameters())) {
      throw_tie(use.layer, first, describe(owner->parameters()),
                describe(use.object->parameters()));
    }
    for (std::size_t i = 0; i < owner->parameters().size(); ++i) {
      use.object->parameters()[i]->init = owner->parameters()[i]->init;
      use.object->parameters()[i]->trainable = owner->parameters()[i]->trainable;
    }
  }

  std::int64_t first_use(std::int64_t layer) const {
    const std::string& key = spec(layer).tie_key;
    if (key.empty()) return layer;
    const auto found =
        std::find_if(module_.layers.begin(), module_.layers.end(),
                     [&key](const LayerSpec& other) { return other.tie_key == key; });
    return found - module_.layers.begin();
  }

  [[noreturn]] void throw_tie(std::int64_t layer, std::int64_t first, const std::string& expected,
                              const std::string& got) const {
    throw tensor::InvalidArgument(layer_label(module_, layer) + ": tied by \"" +
                                  spec(layer).tie_key + "\" to " + layer_label(module_, first) +
                                  ", expected " + expected + ", got " + got);
  }

  // Appends the weights and slots of all tied or of all untied layers.
  void list_parameters(bool tied) {
    for (Use& use : stage_.uses_) {
      if (is_tied(use) != tied) continue;
      use.first_slot = stage_.slot_info_.size();
      for (Parameter* parameter : use.object->parameters()) {
        const std::size_t index = find_or_add(use, *parameter);
        check_sequence(use, *parameter, stage_.parameters_[index].shard);
        holders_[index].push_back(parameter);
        if (!parameter->trainable) continue;
        parameter->slot = stage_.slot_info_.size() - use.first_slot;
        stage_.parameters_[index].uses.push_back(stage_.slot_info_.size());
        stage_.slot_info_.push_back({use.layer, index});
      }
      use.num_slots = stage_.slot_info_.size() - use.first_slot;
    }
  }

  // What every rank has, and uses on its part of the sequence, has a gradient that is a part too.
  void check_sequence(const Use& use, const Parameter& parameter, const Shard& shard) const {
    const bool parts = options_.model.size > 1 && options_.model.sequence_parallel &&
                       spec(use.layer).sequence == SequenceRole::kInside;
    if (!parts || !parameter.trainable || !shard.is_everything() || shard.partial_gradient) return;
    throw tensor::InvalidArgument(
        use.label +
        ": with tensor_parallel.sequence_parallel each rank has a part of the sequence "
        "alone, so its gradient of \"" +
        parameter.name +
        "\", of which all ranks have all, is a "
        "part too; expected Split::whole(Split::Gradient::kPartOfTheSequence) in the layer");
  }

  std::size_t find_or_add(const Use& use, Parameter& parameter) {
    std::string name = logical_name(module_, use.layer, parameter.name);
    const std::size_t next = stage_.parameters_.size();
    const auto [entry, added] = by_name_.try_emplace(name, next);
    if (!added) return entry->second;
    stage_.parameters_.push_back({.name = std::move(name),
                                  .parameter = &parameter,
                                  .shard = shard(use, parameter),
                                  .tie_key = spec(use.layer).tie_key,
                                  .first_layer = first_use(use.layer),
                                  .uses = {}});
    holders_.emplace_back();
    return next;
  }

  Shard shard(const Use& use, const Parameter& parameter) const {
    try {
      return shard_of(parameter.name, parameter.shape, parameter.split, options_.model);
    } catch (const tensor::InvalidArgument& error) {
      throw tensor::InvalidArgument(use.label + ": " + error.what());
    }
  }

  // A tied weight of which this rank has uses in several stages is there once.
  void borrow_weights() {
    for (std::size_t i = 0; i < stage_.parameters_.size(); ++i) {
      StageParameter& entry = stage_.parameters_[i];
      if (entry.tie_key.empty()) continue;
      for (const auto& other : earlier_) {
        const auto held = std::ranges::find(other->parameters_, entry.name, &StageParameter::name);
        if (held == other->parameters_.end()) continue;
        entry.borrowed = true;
        for (Parameter* holder : holders_[i]) holder->value = held->parameter->value;
        break;
      }
    }
  }

  void place_weights(const tensor::Context& context, const StageLayout& layout) {
    if (layout.weight_elements == 0) return;
    const Tensor all = Tensor::empty(context, {layout.weight_elements}, options_.dtype);
    const std::size_t size = tensor::size_of(options_.dtype);
    for (std::size_t i = 0; i < stage_.parameters_.size(); ++i) {
      if (stage_.parameters_[i].borrowed) continue;
      const tensor::Shape& shape = stage_.parameters_[i].shard.shape;
      const Tensor value(all.storage(), static_cast<std::size_t>(layout.weights[i]) * size, shape,
                         options_.dtype);
      for (Parameter* holder : holders_[i]) holder->value = value;
    }
    for (const StageLayout::Piece& piece : layout.pieces) {
      stage_.flat_weights_.push_back(
          {.members = piece.members,
           .values = all.rows(piece.weights, piece.weights + piece.elements),
           .grads_begin = piece.grads,
           .partial_begin = piece.partial,
           .tied = piece.tied});
    }
  }

  void place_grads(const tensor::Context& context, const StageLayout& layout) {
    const tensor::DType grad_dtype = options_.grad_dtype.value_or(options_.dtype);
    stage_.untied_block_ = {.elements = layout.untied_grads, .dtype = grad_dtype};
    stage_.tied_block_ = {.elements = layout.tied_grads, .dtype = grad_dtype};
    for (std::size_t i = 0; i < layout.grads.size(); ++i) {
      const StageParameter& entry = stage_.parameters_[stage_.slot_info_[i].parameter];
      auto& block = entry.tie_key.empty() ? stage_.untied_block_ : stage_.tied_block_;
      block.slots.push_back({i, layout.grads[i], entry.shard.shape});
      stage_.slots_.emplace_back();
    }
    for (const bool tied : {false, true}) stage_.provide_grads(context, tied);
  }

  void draw_weights(tensor::Context context) {
    for (const StageParameter& entry : stage_.parameters_) {
      if (entry.borrowed) continue;
      draw_weight(context, entry,
                  {.seed = options_.seed,
                   .layer = static_cast<std::uint32_t>(entry.first_layer),
                   .parameter = static_cast<std::uint32_t>(entry.parameter->index)});
    }
  }

  Stage& stage_;
  const Module& module_;
  const StageOptions& options_;
  std::span<const std::unique_ptr<Stage>> earlier_;
  NamePatterns frozen_;
  std::map<std::string, std::size_t> by_name_;    // into parameters_
  std::vector<std::vector<Parameter*>> holders_;  // of each of parameters_, all its copies
};

Stage::Stage(const Module& module, std::int64_t begin, std::int64_t end,
             const StageOptions& options, const tensor::Context& context,
             std::span<const std::unique_ptr<Stage>> earlier)
    : begin_(begin), end_(end), last_layer_(std::ssize(module.layers) - 1) {
  Builder(*this, module, options, earlier).run(context);
}

}  // namespace penstock::model
