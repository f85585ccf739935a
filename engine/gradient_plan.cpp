#include "engine/gradient_plan.h"

#include <algorithm>
#include <vector>

namespace penstock::engine {

namespace {

using schedule::Instruction;
using schedule::Opcode;

// Which gradients are there, as the stream goes on.
class Replay {
 public:
  explicit Replay(std::span<const std::unique_ptr<model::Stage>> stages)
      : stages_(stages), untied_(stages.size(), false), tied_(stages.size(), false) {}

  void step(const Instruction& instruction) {
    const auto chunk = static_cast<std::size_t>(std::max(0, instruction.chunk.value));
    switch (instruction.opcode) {
      case Opcode::kBackwardPass:
      case Opcode::kBackwardWeight:
        provide(chunk, /*tied=*/false);
        provide(chunk, /*tied=*/true);
        break;
      case Opcode::kReduceGrads:
        provide(chunk, /*tied=*/false);
        release(chunk, /*tied=*/false);
        break;
      case Opcode::kReduceTiedGrads:
        for (std::size_t i = 0; i < stages_.size(); ++i) provide(i, /*tied=*/true);
        break;
      case Opcode::kOptimizerStep:
        for (std::size_t i = 0; i < stages_.size(); ++i) release(i, /*tied=*/true);
        break;
      default:
        break;
    }
  }
  std::int64_t peak() const { return peak_; }

 private:
  void provide(std::size_t chunk, bool tied) {
    if ((tied ? tied_ : untied_)[chunk]) return;
    (tied ? tied_ : untied_)[chunk] = true;
    live_ += stages_[chunk]->grad_bytes(tied);
    peak_ = std::max(peak_, live_);
  }
  void release(std::size_t chunk, bool tied) {
    if (!(tied ? tied_ : untied_)[chunk]) return;
    (tied ? tied_ : untied_)[chunk] = false;
    live_ -= stages_[chunk]->grad_bytes(tied);
  }

  std::span<const std::unique_ptr<model::Stage>> stages_;
  std::vector<bool> untied_, tied_;  // by chunk: whether they are there
  std::int64_t live_ = 0, peak_ = 0;
};

}  // namespace

GradientBytes plan_gradients(std::span<const std::unique_ptr<model::Stage>> stages,
                             const schedule::Schedule& stream, const ZeroConfig& zero,
                             const Share& share) {
  if (zero.stage < 2) {
    std::int64_t bytes = 0;
    for (const auto& stage : stages) bytes += stage->grad_bytes(false) + stage->grad_bytes(true);
    return {bytes, bytes};
  }
  std::int64_t shares = 0, largest = 0;
  for (const auto& stage : stages) {
    for (const model::FlatWeights& weights : stage->flat_weights()) {
      const std::int64_t bytes = owned_range(weights, share).size() *
                                 static_cast<std::int64_t>(tensor::size_of(stage->grad_dtype()));
      shares += bytes;
      if (!weights.tied) largest = std::max(largest, bytes);
    }
  }
  Replay replay(stages);
  std::vector<Instruction> instructions;
  for (std::int64_t step = 0; step < stream.num_steps(); ++step) {
    instructions.clear();
    stream.emit(step, instructions);
    for (const Instruction& instruction : instructions) replay.step(instruction);
  }
  // What a micro batch adds to a share is there beside it for a moment.
  const std::int64_t added = zero.reduce_each_micro_batch ? largest : 0;
  return {replay.peak() + shares + added, shares};
}

}  // namespace penstock::engine
