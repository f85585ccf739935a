// What an engine tells of its steps: monitors, progress lines, breakdowns.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine_state.h"
#include "engine/report.h"

namespace penstock::engine {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// DeepSpeed's tags; those of evaluations begin with Train too.
Metric metric(std::string_view name, double value) {
  return {"Train/Samples/" + std::string(name), value};
}

void add_extras(const std::string& prefix, const std::map<std::string, double>& extras,
                std::vector<Metric>& metrics) {
  for (const auto& [name, value] : extras) metrics.push_back(metric(prefix + name, value));
}

void add_times(const StepTimers& timers, std::vector<Metric>& metrics) {
  const double inner = timers.seconds_of_step(Timer::kBackwardInner);
  const double reduce = timers.seconds_of_step(Timer::kReduce);
  const std::pair<const char*, double> times[] = {
      {"forward", timers.seconds_of_step(Timer::kForward)},
      {"backward", inner + reduce},
      {"backward_inner", inner},
      {"backward_allreduce", reduce},
      {"step", timers.seconds_of_step(Timer::kStep)}};
  for (const auto& [name, seconds] : times) {
    metrics.push_back(metric(std::string("elapsed_time_ms_") + name, seconds * 1e3));
  }
}

}  // namespace

void Engine::State::start_reports() {
  if (config.device.type == tensor::DeviceType::kCuda) executor.add_observer(spans);
  if (config.wall_clock_breakdown) {
    executor.add_observer(*device_wait);
    executor.add_observer(timers);
  }
  if (world.rank() != 0) return;
  auto made = std::make_unique<Monitors>(config);
  if (!made->empty()) monitors = std::move(made);
}

void Engine::State::begin_step() {
  step_begin = Clock::now();
  timers.begin_step();
}

void Engine::State::report_step(const TrainResult& result) {
  call_clock.end(world);
  ++trained;
  const double seconds = seconds_since(step_begin);
  throughput.add_step(rank->batch.total_samples, seconds);
  timers.end_step(seconds);
  if (monitors != nullptr) {
    std::vector<Metric> metrics{metric("train_loss", result.loss), metric("lr", result.lr.back()),
                                metric("grad_norm", result.grad_norm)};
    add_extras("train_loss_", result.extras, metrics);
    if (config.wall_clock_breakdown) add_times(timers, metrics);
    write_metrics(metrics);
  }
  if (!config.steps_per_print || result.step % *config.steps_per_print != 0) return;
  progress_line(result);
  breakdown_lines();
  throughput.mark();
  print_time = Clock::now();
  print_step = result.step;
}

void Engine::State::report_eval(const EvalResult& result) {
  if (monitors == nullptr || !result.loss) return;
  std::vector<Metric> metrics{metric("eval_loss", *result.loss)};
  add_extras("eval_loss_", result.extras, metrics);
  write_metrics(metrics);
}

void Engine::State::write_metrics(std::span<const Metric> metrics) {
  monitors->write(metrics, samples, [this](tensor::LogLevel level, std::string text) {
    log(level, std::move(text), steps);
  });
}

void Engine::State::progress_line(const TrainResult& result) {
  if (world.rank() != 0) return;
  Progress progress;
  progress.samples_per_second = throughput.current();
  progress.mean_samples_per_second = throughput.running();
  progress.tokens_per_sample = tokens_per_sample;
  // By the clock on the wall: evaluations and checkpoints will take their time again.
  const std::int64_t steps_left = std::max<std::int64_t>(0, options.total_steps - result.step);
  progress.seconds_left = seconds_since(print_time) /
                          static_cast<double>(result.step - print_step) *
                          static_cast<double>(steps_left);
  log(tensor::LogLevel::kInfo, progress_text(result, progress), result.step);
}

// The stages differ, and their replicas do much the same: one rank speaks for each.
void Engine::State::breakdown_lines() {
  if (rank->comms.data().rank() != 0 || rank->comms.model().rank() != 0) return;
  if (config.wall_clock_breakdown) {
    const StepTimers::Lines lines = timers.take_lines();
    log(tensor::LogLevel::kInfo, lines.passes, steps);
    log(tensor::LogLevel::kInfo, lines.steps, steps);
  }
  if (config.memory_breakdown) log(tensor::LogLevel::kInfo, memory_text(*rank), steps);
}

}  // namespace penstock::engine
