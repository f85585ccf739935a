#include "model/stage_layout.h"

#include <algorithm>
#include <utility>

#include "tensor/allocator.h"

namespace penstock::model {

namespace {

// Hands out places in one allocation.
class Places {
 public:
  // alignment: of each place; shares: divides the size of each.
  Places(std::int64_t alignment, std::int64_t shares) : alignment_(alignment), shares_(shares) {}

  std::int64_t place(std::int64_t elements) {
    const std::int64_t begin = end_;
    end_ = begin + round_up(elements, alignment_);
    return begin;
  }
  // Goes on where the elements since `begin` are a multiple of the shares. Returns their number.
  std::int64_t close(std::int64_t begin) {
    const std::int64_t elements = round_up(end_ - begin, shares_);
    end_ = round_up(begin + elements, alignment_);
    return elements;
  }
  std::int64_t end() const { return end_; }

 private:
  static std::int64_t round_up(std::int64_t number, std::int64_t step) {
    return (number + step - 1) / step * step;
  }

  std::int64_t alignment_, shares_;
  std::int64_t end_ = 0;
};

class Builder {
 public:
  Builder(std::span<const StageParameter> parameters, std::span<const StageSlot> slots,
          const StageOptions& options)
      : parameters_(parameters),
        slots_(slots),
        weights_(alignment(options), options.shares),
        untied_(alignment(options), options.shares),
        tied_(alignment(options), options.shares) {
    layout_.weights.resize(parameters.size());
    layout_.grads.resize(slots.size());
  }

  StageLayout run() {
    place_untied();
    place_tied();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].uses.empty() || parameters_[i].borrowed) continue;
      layout_.weights[i] = weights_.place(numel(i));
    }
    layout_.weight_elements = weights_.end();
    layout_.untied_grads = untied_.end();
    layout_.tied_grads = tied_.end();
    return std::move(layout_);
  }

 private:
  // In elements of both dtypes, so that weights and gradients lie alike.
  static std::int64_t alignment(const StageOptions& options) {
    const std::size_t size = std::min(tensor::size_of(options.dtype),
                                      tensor::size_of(options.grad_dtype.value_or(options.dtype)));
    return static_cast<std::int64_t>(tensor::Allocator::kAlignment / size);
  }

  std::int64_t numel(std::size_t parameter) const {
    return parameters_[parameter].shard.shape.numel();
  }

  void place_untied() {
    StageLayout::Piece piece;
    for (const bool partial : {false, true}) {
      if (partial) piece.partial = untied_.end();
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const StageParameter& entry = parameters_[i];
        if (entry.uses.empty() || !entry.tie_key.empty() ||
            entry.shard.partial_gradient != partial) {
          continue;
        }
        layout_.weights[i] = weights_.place(numel(i));
        layout_.grads[entry.uses.front()] = untied_.place(numel(i));
        piece.members.push_back({i, layout_.weights[i]});
      }
    }
    if (piece.members.empty()) return;
    const bool has_partial = piece.partial < untied_.end();
    piece.elements = weights_.close(0);
    untied_.close(0);
    if (!has_partial) piece.partial = piece.elements;
    layout_.pieces.push_back(std::move(piece));
  }

  // Each use has its own accumulator; the first one is reduced, and lies like its weight.
  void place_tied() {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const std::size_t i = slots_[slot].parameter;
      const StageParameter& entry = parameters_[i];
      if (entry.tie_key.empty()) continue;
      layout_.grads[slot] = tied_.place(numel(i));
      const std::int64_t elements = tied_.close(layout_.grads[slot]);
      if (entry.borrowed || slot != entry.uses.front()) continue;
      layout_.weights[i] = weights_.place(numel(i));
      weights_.close(layout_.weights[i]);
      layout_.pieces.push_back({.members = {{i, 0}},
                                .weights = layout_.weights[i],
                                .grads = layout_.grads[slot],
                                .elements = elements,
                                .partial = entry.shard.partial_gradient ? 0 : elements,
                                .tied = true});
    }
  }

  std::span<const StageParameter> parameters_;
  std::span<const StageSlot> slots_;
  Places weights_, untied_, tied_;
  StageLayout layout_;
};

}  // namespace

StageLayout lay_out(std::span<const StageParameter> parameters, std::span<const StageSlot> slots,
                    const StageOptions& options) {
  return Builder(parameters, slots, options).run();
}

}  // namespace penstock::model
