#include "engine/report.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "engine/device.h"
#include "engine/text_table.h"

namespace penstock::engine {

namespace {

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

std::string device_note(const RankState& rank) {
  if (rank.context.device == tensor::kCpuDevice) return {};
  return ", rank 0 on " + device_text(*rank.context.allocator, rank.transport);
}

}  // namespace

std::string startup_report_text(RankState& rank, const BatchTriple& batch,
                                std::string_view schedule) {
  const std::vector<StageCount> counts = count_all(rank);
  const int replicas = rank.comms.data().size();
  std::string text = "grid: pipe " + std::to_string(rank.map.num_ranks()) + " x data " +
                     std::to_string(replicas) + " x model " +
                     std::to_string(rank.comms.model().size()) + " (" +
                     std::string(rank.world.kind()) + ", " + std::to_string(rank.context.threads) +
                     (rank.context.threads == 1 ? " thread" : " threads") + " per rank" +
                     device_note(rank) + "), schedule " + std::string(schedule) + "\n";
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
  if (progress.samples_per_second > 0.0) {
    text += ", " + formatted("%.1f", progress.samples_per_second) + " samples/s (" +
            formatted("%.1f", progress.mean_samples_per_second) + ")";
    if (progress.tokens_per_sample > 0) {
      const auto tokens = static_cast<double>(progress.tokens_per_sample);
      text += ", " + formatted("%.0f", progress.samples_per_second * tokens) + " tokens/s";
    }
  }
  if (progress.seconds_left > 0.0) text += ", " + clock_text(progress.seconds_left) + " left";
  return text;
}

std::string memory_text(RankState& rank) {
  std::size_t parameters = 0, gradients = 0, state = 0;
  for (const auto& stage : rank.stages) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      if (!parameter.borrowed) parameters += parameter.parameter->value.nbytes();
    }
    for (const tensor::GradSlot& slot : stage->slots()) gradients += slot.grad.nbytes();
  }
  if (rank.updater != nullptr) {
    for (const ParameterState& parameter : rank.updater->states()) {
      for (const tensor::Tensor& tensor : parameter.state) state += tensor.nbytes();
    }
  }
  const auto mebibytes = [](auto bytes) {
    return formatted("%.2f", static_cast<double>(bytes) / (1 << 20));
  };
  const tensor::MemoryCounters& memory = *rank.context.allocator->counters();
  const std::int64_t live = memory.live_bytes();
  const auto known = static_cast<std::int64_t>(parameters + gradients + state);
  std::string driver;
  if (const std::optional<DeviceBytes> device = device_bytes(*rank.context.allocator)) {
    driver = "; the driver: " + mebibytes(device->allocated) + " allocated, " +
             mebibytes(device->cached) + " cached, " + mebibytes(device->peak) + " at most";
  }
  if (rank.graphs != nullptr) driver += "; for graphs " + mebibytes(rank.graphs->bytes());
  return "memory (MiB): " + mebibytes(live) + " now (parameters " + mebibytes(parameters) +
         ", gradients " + mebibytes(gradients) + ", optimizer state " + mebibytes(state) +
         ", other " + mebibytes(live - known) + "), " + mebibytes(memory.peak_bytes()) +
         " at most" + driver;
}

std::string not_finite_text(std::int64_t step, const UpdateResult& update) {
  std::string text = "the gradients of step " + std::to_string(step) + " are not finite";
  if (update.bad_layer >= 0) text += ", first in layer " + std::to_string(update.bad_layer);
  return text;
}

std::string state_dump(const RankState& rank, const Config& config) {
  std::string text = "configuration:\n" + config.canonical_text;
  for (int stage = 0; stage < rank.map.num_stages(); ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    text += "\nstage " + std::to_string(stage) + " on pipe rank " +
            std::to_string(rank.map.rank_of(schedule::StageId(stage)).value) + ":";
    for (std::int64_t layer = rank.bounds[at]; layer < rank.bounds[at + 1]; ++layer) {
      const model::LayerSpec& spec = rank.module.layers[static_cast<std::size_t>(layer)];
      text += "\n  layer " + std::to_string(layer) + ": " + spec.type;
      if (!spec.tie_key.empty()) text += ", tied by \"" + spec.tie_key + "\"";
    }
  }
  return text;
}

}  // namespace penstock::engine
