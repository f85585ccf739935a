#include "tools/train/plan.h"

#include <optional>
#include <utility>

#include "engine/batch_config.h"
#include "engine/memory_plan.h"
#include "model/data/repeating_source.h"
#include "tools/train/data_choice.h"
#include "tools/train/model_choice.h"

namespace penstock::tools {

namespace {

constexpr const char* kLegend = R"(
bytes of each rank of the pipe, on the first replica and the first rank of its model groups: others
  may need a little less, where weights or optimizer state are shared out unevenly
ties: to exchange the gradients of weights that other ranks use too, and to sum gradients in another dtype
tape, data, pipe gradients, in flight: of the pipe buffers at their peak, however late transfers end;
  saved for the backward; inputs, outputs, labels; gradients of activations; sent and held no more
workspace: the most that one pass allocates beyond what it finds or leaves
)";

// Its shapes are those of every micro batch.
model::MicroBatch first_micro_batch(const DataChoice& data, const ModelConfig& config,
                                    std::int64_t rows) {
  model::RepeatingSource source(open_data(data, config, std::nullopt));
  std::optional<model::MicroBatch> batch = source.next(rows);
  return std::move(batch.value());
}

}  // namespace

int least_ranks(const engine::Config& config) {
  return config.pipeline.stages * config.tensor_parallel.size;
}

std::string describe_plan(const TrainOptions& options, const engine::Config& config) {
  const ModelChoice choice = choose_model(options.model);
  const int ranks = options.ranks.value_or(least_ranks(config));
  const engine::DataParallelSize replicas =
      engine::data_parallel_size(ranks, config.pipeline.stages, config.tensor_parallel.size);
  const engine::BatchTriple batch = engine::resolve_batch(config.batch, replicas);
  const std::int64_t rows = batch.train_micro_batch_size_per_gpu;
  const auto plan = engine::plan_training(choice.module, config, ranks,
                                          first_micro_batch(options.data, choice.config, rows));
  return "grid: pipe " + std::to_string(config.pipeline.stages) + " x data " +
         std::to_string(replicas.size) + " x model " + std::to_string(config.tensor_parallel.size) +
         "; " + config.pipeline.schedule + ", " +
         std::to_string(batch.gradient_accumulation_steps) + " micro batches of " +
         std::to_string(rows) + (rows == 1 ? " sample" : " samples") + "\n\n" +
         engine::to_text(plan) + kLegend;
}

}  // namespace penstock::tools
