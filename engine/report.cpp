#include "engine/report.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/engine_state.h"

namespace penstock::engine {

namespace {

// Numbers as a person reads them: 1,234,567.
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > 0; i -= 3) {
    text.insert(static_cast<std::size_t>(i), ",");
  }
  return text;
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string clock_text(double seconds) {
  const auto total = static_cast<std::int64_t>(seconds + 0.5);
  char text[64];
  std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  return text;
}

struct StageCount {
  std::int64_t parameters = 0;  // on the stage
  std::int64_t unique = 0;      // of those, not tied to an earlier stage
};

StageCount count(const model::Stage& stage) {
  StageCount result;
  for (const model::StageParameter& parameter : stage.parameters()) {
    const std::int64_t elements = parameter.parameter->shape.numel();
    result.parameters += elements;
    if (parameter.first_layer >= stage.begin()) result.unique += elements;
  }
  return result;
}

}  // namespace

std::string startup_report_text(RankState& rank, const BatchTriple& batch, const Config& config) {
  comm::Communicator& pipe = rank.comms.pipe();
  const int replicas = rank.comms.data().size();
  const StageCount mine = count(*rank.stages.front());
  const auto stages = static_cast<std::size_t>(pipe.size());
  std::vector<std::int64_t> counts(2 * stages, 0);
  counts[2 * static_cast<std::size_t>(pipe.rank())] = mine.parameters;
  counts[2 * static_cast<std::size_t>(pipe.rank()) + 1] = mine.unique;
  pipe.all_reduce_wait(counts, comm::ReduceOp::kSum);

  std::string text = "grid: pipe " + std::to_string(pipe.size()) + " x data " +
                     std::to_string(replicas) + " x model 1 (" + std::string(rank.world.kind()) +
                     ", " + std::to_string(rank.context.threads) + " threads per rank), schedule " +
                     config.pipeline.schedule + "\n";
  text += "batch: train_batch_size " + std::to_string(batch.train_batch_size) + " = micro batch " +
          std::to_string(batch.train_micro_batch_size_per_gpu) + " x accumulation " +
          std::to_string(batch.gradient_accumulation_steps) + " x replicas " +
          std::to_string(replicas) + "\n";
  StageCount total;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::int64_t begin = rank.bounds[stage];
    const std::int64_t end = rank.bounds[stage + 1];
    text += "stage " + std::to_string(stage) + ": layers " + std::to_string(begin) + "-" +
            std::to_string(end - 1) + " (" + std::to_string(end - begin) + "), parameters " +
            grouped(counts[2 * stage]) + "\n";
    total.parameters += counts[2 * stage];
    total.unique += counts[2 * stage + 1];
  }
  return text + "parameters: total " + grouped(total.parameters) + ", unique " +
         grouped(total.unique);
}

std::string progress_text(const TrainResult& result, const Progress& progress) {
  std::string text =
      "step " + std::to_string(result.step) + ": loss " + formatted("%.4f", result.loss) + ", lr " +
      formatted("%.4g", result.lr.back()) + ", norm " + formatted("%.4g", result.grad_norm);
  if (result.skipped) text += " (skipped)";
  if (progress.seconds > 0.0 && progress.steps > 0) {
    const double steps_per_second = static_cast<double>(progress.steps) / progress.seconds;
    const double samples = steps_per_second * static_cast<double>(progress.samples_per_step);
    text += ", " + formatted("%.1f", samples) + " samples/s";
    if (progress.tokens_per_sample > 0) {
      text += ", " + formatted("%.0f", samples * static_cast<double>(progress.tokens_per_sample)) +
              " tokens/s";
    }
    if (progress.steps_left > 0) {
      text +=
          ", " + clock_text(static_cast<double>(progress.steps_left) / steps_per_second) + " left";
    }
  }
  return text;
}

void Engine::State::progress_line(const TrainResult& result) {
  if (!config.steps_per_print || result.step % *config.steps_per_print != 0) return;
  if (world.rank() != 0) return;
  const auto now = std::chrono::steady_clock::now();
  Progress progress;
  progress.seconds = std::chrono::duration<double>(now - print_time).count();
  progress.steps = result.step - print_step;
  progress.samples_per_step = batch.train_batch_size;
  progress.tokens_per_sample = tokens_per_sample;
  progress.steps_left = std::max<std::int64_t>(0, options.total_steps - result.step);
  print_time = now;
  print_step = result.step;
  log(tensor::LogLevel::kInfo, progress_text(result, progress), result.step);
}

}  // namespace penstock::engine
