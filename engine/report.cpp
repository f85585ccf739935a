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

std::string clock_text(double seconds) {
  const auto total = static_cast<std::int64_t>(seconds + 0.5);
  char text[64];
  std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  return text;
}

struct StageCount {
  std::int64_t parameters = 0;  // in the memory of the stage
  std::int64_t unique = 0;      // of those, not tied to an earlier stage
};

StageCount count(const model::Stage& stage) {
  StageCount result;
  for (const model::StageParameter& parameter : stage.parameters()) {
    if (parameter.borrowed) continue;
    const std::int64_t elements = parameter.parameter->shape.numel();
    result.parameters += elements;
    if (stage.owns(parameter)) result.unique += elements;
  }
  return result;
}

// Of every stage. Collective over the pipe.
std::vector<StageCount> count_all(RankState& rank) {
  const auto stages = static_cast<std::size_t>(rank.map.num_stages());
  std::vector<std::int64_t> numbers(2 * stages, 0);
  for (std::size_t chunk = 0; chunk < rank.stages.size(); ++chunk) {
    const StageCount mine = count(*rank.stages[chunk]);
    const auto stage = static_cast<std::size_t>(rank.stage_ids()[chunk].value);
    numbers[2 * stage] = mine.parameters;
    numbers[2 * stage + 1] = mine.unique;
  }
  rank.comms.pipe().all_reduce_wait(numbers, comm::ReduceOp::kSum);
  std::vector<StageCount> counts(stages);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    counts[stage] = {numbers[2 * stage], numbers[2 * stage + 1]};
  }
  return counts;
}

// "stage 3: layers 6-7 (2), parameters 1,088"
std::string stage_text(const RankState& rank, schedule::StageId id, const StageCount& count) {
  const auto stage = static_cast<std::size_t>(id.value);
  const std::int64_t begin = rank.bounds[stage];
  const std::int64_t end = rank.bounds[stage + 1];
  return "stage " + std::to_string(stage) + ": layers " + std::to_string(begin) + "-" +
         std::to_string(end - 1) + " (" + std::to_string(end - begin) + "), parameters " +
         grouped(count.parameters) + "\n";
}

// The stages, one per line; where stage s is not all that rank s has, under the rank that owns
// them.
std::string stages_text(const RankState& rank, const std::vector<StageCount>& counts) {
  const bool plain = rank.map == schedule::StageMap::loop(rank.map.num_ranks(), 1);
  std::string text;
  for (int owner = 0; owner < rank.map.num_ranks(); ++owner) {
    std::string lines;
    std::int64_t parameters = 0;
    for (const schedule::StageId id : rank.map.stages_of(schedule::PipeRank(owner))) {
      const StageCount& count = counts[static_cast<std::size_t>(id.value)];
      lines += (plain ? "" : "  ") + stage_text(rank, id, count);
      parameters += count.parameters;
    }
    if (!plain) {
      text += "pipe rank " + std::to_string(owner) + ": parameters " + grouped(parameters) + "\n";
    }
    text += lines;
  }
  return text;
}

}  // namespace

std::string startup_report_text(RankState& rank, const BatchTriple& batch,
                                std::string_view schedule) {
  const std::vector<StageCount> counts = count_all(rank);
  const int replicas = rank.comms.data().size();
  std::string text = "grid: pipe " + std::to_string(rank.map.num_ranks()) + " x data " +
                     std::to_string(replicas) + " x model 1 (" + std::string(rank.world.kind()) +
                     ", " + std::to_string(rank.context.threads) + " threads per rank), schedule " +
                     std::string(schedule) + "\n";
  text += "batch: train_batch_size " + std::to_string(batch.train_batch_size) + " = micro batch " +
          std::to_string(batch.train_micro_batch_size_per_gpu) + " x accumulation " +
          std::to_string(batch.gradient_accumulation_steps) + " x replicas " +
          std::to_string(replicas) + "\n";
  text += stages_text(rank, counts);
  StageCount total;
  for (const StageCount& count : counts) {
    total.parameters += count.parameters;
    total.unique += count.unique;
  }
  return text + "parameters: total " + grouped(total.parameters) + ", unique " +
         grouped(total.unique);
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
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
