#include "schedule/deepspeed.h"

#include <algorithm>

#include "schedule/args.h"

namespace penstock::schedule {
namespace {

// Two at least: one is filled while the other is sent. In 64 bits, as nothing is checked yet.
int train_pipe_buffers(const ScheduleArgs& args) {
  const std::int64_t stages_to_come = std::int64_t{args.ranks} - args.rank.value;
  const std::int64_t in_flight = std::min<std::int64_t>(stages_to_come, args.micro_batches);
  return static_cast<int>(std::max<std::int64_t>(2, in_flight));
}

}  // namespace

DeepSpeedSchedule::DeepSpeedSchedule(std::string_view name, const ScheduleArgs& args,
                                     int pipe_buffers)
    : Schedule(name, args), pipe_buffers_(pipe_buffers) {
  one_stage_per_rank(name, args);  // refuses any other map
}

Instruction DeepSpeedSchedule::on(Opcode opcode, std::int64_t micro_batch) const {
  const auto index = static_cast<std::int32_t>(micro_batch);
  return instruction(opcode, ChunkId{0}, MicroBatchId{index}, BufferId{index % pipe_buffers_});
}

TrainSchedule::TrainSchedule(const ScheduleArgs& args)
    : DeepSpeedSchedule(kName, args, train_pipe_buffers(args)) {}

std::int64_t TrainSchedule::num_steps() const {
  return 2 * (std::int64_t{num_micro_batches()} + num_ranks() - 1);
}

std::int64_t TrainSchedule::micro_batch_at(std::int64_t step) const {
  return is_forward(step) ? (step - stage()) / 2 : (step + stage() + 1) / 2 - num_ranks();
}

void TrainSchedule::do_emit(std::int64_t step, std::vector<Instruction>& out) const {
  const std::int64_t current = micro_batch_at(step);
  const std::int64_t previous = micro_batch_at(step - 1);

  // In one step a pair of neighbours exchanges a gradient, then an activation: the same order on
  // both sides, so that even transfers that block cannot lock.
  if (is_forward(step)) {
    if (exists(previous) && !is_first()) out.push_back(on(Opcode::kSendGrad, previous));
    if (exists(current) && !is_first()) out.push_back(on(Opcode::kRecvActivation, current));
    if (exists(current) && (is_first() || is_last())) {
      out.push_back(on(Opcode::kLoadMicroBatch, current));
    }
    if (exists(current)) out.push_back(on(Opcode::kForwardPass, current));
  } else {
    if (exists(current) && !is_last()) out.push_back(on(Opcode::kRecvGrad, current));
    if (exists(previous) && !is_last()) out.push_back(on(Opcode::kSendActivation, previous));
    if (exists(current)) out.push_back(on(Opcode::kBackwardPass, current));
  }

  if (step == num_steps() - 1) {
    out.push_back(instruction(Opcode::kReduceTiedGrads));
    out.push_back(instruction(Opcode::kReduceGrads, ChunkId{0}));
    out.push_back(instruction(Opcode::kOptimizerStep));
  }
}

InferenceSchedule::InferenceSchedule(const ScheduleArgs& args)
    : DeepSpeedSchedule(kName, args, 2) {}

std::int64_t InferenceSchedule::num_steps() const {
  return std::int64_t{num_micro_batches()} + num_ranks() - 1;
}

void InferenceSchedule::do_emit(std::int64_t step, std::vector<Instruction>& out) const {
  const std::int64_t current = step - stage();
  const std::int64_t previous = current - 1;

  if (exists(current) && (is_first() || is_last())) {
    out.push_back(on(Opcode::kLoadMicroBatch, current));
  }
  // Even stages send first and odd ones receive first, so that transfers that block cannot lock.
  const bool sends_first = stage() % 2 == 0;
  const auto send = [&] {
    if (exists(previous) && !is_last()) out.push_back(on(Opcode::kSendActivation, previous));
  };
  if (sends_first) send();
  if (exists(current) && !is_first()) out.push_back(on(Opcode::kRecvActivation, current));
  if (!sends_first) send();
  if (exists(current)) out.push_back(on(Opcode::kForwardPass, current));
}

DataParallelSchedule::DataParallelSchedule(const ScheduleArgs& args)
    : DeepSpeedSchedule(kName, args, 1) {
  if (args.ranks != 1) {
    throw ScheduleError("[schedule data_parallel] pipeline.stages is " +
                        std::to_string(args.ranks) +
                        "; expected 1: this schedule does not cut the model; set it to 1 or "
                        "choose another pipeline.schedule");
  }
}

std::int64_t DataParallelSchedule::num_steps() const {
  return num_micro_batches();
}

void DataParallelSchedule::do_emit(std::int64_t step, std::vector<Instruction>& out) const {
  out.push_back(on(Opcode::kLoadMicroBatch, step));
  out.push_back(on(Opcode::kForwardPass, step));
  out.push_back(on(Opcode::kBackwardPass, step));
  if (step == num_steps() - 1) {
    out.push_back(instruction(Opcode::kReduceGrads, ChunkId{0}));
    out.push_back(instruction(Opcode::kOptimizerStep));
  }
}

}  // namespace penstock::schedule
