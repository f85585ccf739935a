// DeepSpeed's three schedules, instruction for instruction, with the micro batch as an additional
// operand. Each step is computed from its number alone. One stage per rank; the buffer of a micro
// batch is its index modulo num_pipe_buffers. Formulas: DeepSpeed, runtime/pipe/schedule.py.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"

namespace penstock::schedule {

// What the three have in common.
class DeepSpeedSchedule : public Schedule {
 protected:
  DeepSpeedSchedule(std::string_view name, const ScheduleArgs& args, int pipe_buffers);

  int stage() const { return rank().value; }
  bool is_first() const { return stage() == 0; }
  bool is_last() const { return stage() == num_ranks() - 1; }
  bool exists(std::int64_t micro_batch) const {
    return micro_batch >= 0 && micro_batch < num_micro_batches();
  }
  // An instruction on a micro batch, in the buffer that is the micro batch's.
  Instruction on(Opcode opcode, std::int64_t micro_batch) const;

 private:
  int do_num_pipe_buffers(ChunkId) const override { return pipe_buffers_; }

  int pipe_buffers_;
};

// Training, one forward and one backward in turn (1F1B), with the gradients of all micro batches
// reduced in the last step. With P stages, stage s runs micro batch m forward in step 2m + s and
// backward in step 2m + 2P - 1 - s; what a step made is sent in the step after. At most
// min(P - s, M) micro batches are in flight, whatever M is.
class TrainSchedule final : public DeepSpeedSchedule {
 public:
  static constexpr std::string_view kName = "train";

  explicit TrainSchedule(const ScheduleArgs& args);
  std::int64_t num_steps() const override;

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override;

  // Each step has room for one pass, forward and backward in turn; stages of odd number begin
  // with the other one than those of even number.
  bool is_forward(std::int64_t step) const { return (step + stage()) % 2 == 0; }
  // The micro batch whose pass the step holds. The step holds none if there is no such one.
  std::int64_t micro_batch_at(std::int64_t step) const;
};

// Forward only: stage s runs micro batch m in step m + s and sends its output in the next one,
// so that two buffers are enough.
class InferenceSchedule final : public DeepSpeedSchedule {
 public:
  static constexpr std::string_view kName = "inference";

  explicit InferenceSchedule(const ScheduleArgs& args);
  std::int64_t num_steps() const override;

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override;
};

// Training on one stage: gradient accumulation over micro batches, one buffer. It has no
// ReduceTiedGrads, so it cannot train a model with tied layers.
class DataParallelSchedule final : public DeepSpeedSchedule {
 public:
  static constexpr std::string_view kName = "data_parallel";

  explicit DataParallelSchedule(const ScheduleArgs& args);
  std::int64_t num_steps() const override;

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override;
};

}  // namespace penstock::schedule
