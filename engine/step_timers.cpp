#include "engine/step_timers.h"

#include <cstddef>
#include <optional>
#include <string_view>

#include "engine/report.h"

namespace penstock::engine {

namespace {

std::optional<Timer> timer_of(schedule::Opcode opcode) {
  using schedule::Opcode;
  switch (opcode) {
    case Opcode::kLoadMicroBatch:
      return Timer::kBatchInput;
    case Opcode::kForwardPass:
      return Timer::kForward;
    case Opcode::kBackwardPass:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      return Timer::kBackwardInner;
    case Opcode::kReduceGrads:
    case Opcode::kReduceTiedGrads:
      return Timer::kReduce;
    case Opcode::kOptimizerStep:
      return Timer::kStep;
    case Opcode::kSendActivation:
      return Timer::kSendOutput;
    case Opcode::kSendGrad:
      return Timer::kSendGrad;
    case Opcode::kRecvActivation:
      return Timer::kRecvInput;
    case Opcode::kRecvGrad:
      return Timer::kRecvGrad;
  }
  return std::nullopt;
}

// Adds " | name: mean" of what took so many seconds in so many goes.
void add_mean(std::string& line, std::string_view name, double seconds, std::int64_t times) {
  if (times == 0) return;
  line.append(" | ").append(name).append(": ");
  line += formatted("%.2f", seconds * 1e3 / static_cast<double>(times));
}

}  // namespace

void StepTimers::begin_step() {
  step_ = {};
  in_step_ = true;
}

void StepTimers::end_step(double seconds) {
  of(step_, Timer::kTrainBatch) = {seconds, 1};
  in_step_ = false;
  for (std::size_t i = 0; i < kTimerCount; ++i) {
    since_[i].seconds += step_[i].seconds;
    since_[i].times += step_[i].times;
  }
}

void StepTimers::add(Timer timer, Clock::time_point begin) {
  if (!in_step_) return;
  of(step_, timer).seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

double StepTimers::seconds_of_step(Timer timer) const {
  return step_[static_cast<std::size_t>(timer)].seconds;
}

void StepTimers::before(std::int64_t, const schedule::Instruction&) {
  begin_ = Clock::now();
}

void StepTimers::after(std::int64_t, const schedule::Instruction& instruction) {
  const Clock::time_point end = Clock::now();
  const std::optional<Timer> timer = timer_of(instruction.opcode);
  if (!in_step_ || !timer) return;
  Sum& sum = of(step_, *timer);
  sum.seconds += std::chrono::duration<double>(end - begin_).count();
  // The two halves of a backward pass are one.
  if (instruction.opcode != schedule::Opcode::kBackwardWeight) ++sum.times;
}

StepTimers::Lines StepTimers::take_lines() {
  Sums sums = since_;
  since_ = {};
  Lines lines{"time (ms)", "time (ms)"};
  const Sum& backward = of(sums, Timer::kBackwardInner);
  const Sum& reduce = of(sums, Timer::kReduce);
  const double backward_seconds = backward.seconds + reduce.seconds;
  const auto pass = [&](std::string_view name, Timer timer) {
    const Sum& sum = of(sums, timer);
    add_mean(lines.passes, name, sum.seconds, sum.times);
  };
  pass("batch_input", Timer::kBatchInput);
  pass("fwd_microstep", Timer::kForward);
  add_mean(lines.passes, "bwd_microstep", backward_seconds, backward.times);
  pass("bwd_inner_microstep", Timer::kBackwardInner);
  pass("bwd_allreduce_microstep", Timer::kReduce);
  pass("step_microstep", Timer::kStep);

  const std::int64_t steps = of(sums, Timer::kTrainBatch).times;
  const auto whole = [&](std::string_view name, Timer timer) {
    const Sum& sum = of(sums, timer);
    add_mean(lines.steps, name, sum.seconds, sum.times > 0 ? steps : 0);
  };
  whole("fwd", Timer::kForward);
  add_mean(lines.steps, "bwd", backward_seconds, backward.times > 0 ? steps : 0);
  whole("bwd_inner", Timer::kBackwardInner);
  whole("bwd_allreduce", Timer::kReduce);
  whole("step", Timer::kStep);
  whole("train_batch", Timer::kTrainBatch);
  whole("pipe_send_output", Timer::kSendOutput);
  whole("pipe_send_grad", Timer::kSendGrad);
  whole("pipe_recv_input", Timer::kRecvInput);
  whole("pipe_recv_grad", Timer::kRecvGrad);
  return lines;
}

}  // namespace penstock::engine
