#include "engine/memory_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "engine/any_order.h"
#include "engine/auto_schedule.h"
#include "engine/batch_config.h"
#include "engine/cuts.h"
#include "engine/gradient_plan.h"
#include "engine/input_dtype.h"
#include "engine/memory_replay.h"
#include "engine/stage_options.h"
#include "engine/stage_profile.h"
#include "engine/streams.h"
#include "engine/text_table.h"
#include "engine/update.h"
#include "model/stage.h"

namespace penstock::engine {

namespace {

using schedule::Opcode;
using schedule::StageId;
using tensor::Storage;
using tensor::Tensor;

std::vector<Tensor> shapes_of(std::span<const Tensor> tensors, const tensor::Context& context) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) {
    result.push_back(Tensor::empty(context, tensor.shape(), tensor.dtype()));
  }
  return result;
}

class Planner {
 public:
  Planner(const model::Module& module, const Config& config, std::span<const std::int64_t> bounds,
          const schedule::Schedule& stream, const model::MicroBatch& example,
          const PipePlace& place)
      : module_(module),
        config_(config),
        bounds_(bounds),
        map_(stream.stage_map()),
        replicas_(place.replicas),
        share_(share_of(config.zero, place.replica, place.replicas)),
        context_(tensor::make_meta_allocator()) {
    context_.model = {.size = config.tensor_parallel.size,
                      .rank = place.model_rank,
                      .sequence_parallel = config.tensor_parallel.sequence_parallel};
    build_stages();
    context_.training = contains(stream, Opcode::kOptimizerStep) ||
                        contains(stream, Opcode::kBackwardPass) ||
                        contains(stream, Opcode::kBackwardInput);
    profile_stages(example);
  }

  RankMemory plan(const schedule::Schedule& stream) const {
    const auto& stages = stages_[static_cast<std::size_t>(stream.rank().value)];
    RankMemory memory;
    memory.pipe_buffers = MemoryReplay(stream, profiles_).run();
    memory.workspace = workspace(stream);
    memory.weights = weight_bytes(stages);
    const GradientBytes gradients = plan_gradients(stages, stream, config_.zero, share_);
    memory.gradients = gradients.peak;
    memory.gradients_between_steps = gradients.between_steps;
    if (context_.training && config_.optimizer) {
      memory.optimizer = optimizer_bytes(stages);
      memory.ties = tie_bytes(stream.rank()) + conversion_bytes(stages);
    }
    return memory;
  }

 private:
  using Stages = std::vector<std::unique_ptr<model::Stage>>;

  void build_stages() {
    const model::StageOptions options = stage_options(config_, context_.model, replicas_);
    stages_.resize(static_cast<std::size_t>(map_.num_ranks()));
    for (int stage = 0; stage < map_.num_stages(); ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      Stages& own = stages_[static_cast<std::size_t>(map_.rank_of(StageId(stage)).value)];
      own.push_back(std::make_unique<model::Stage>(module_, bounds_[at], bounds_[at + 1], options,
                                                   context_, own));
    }
  }

  model::Stage& stage(StageId id) {
    return *stages_[static_cast<std::size_t>(map_.rank_of(id).value)]
                   [static_cast<std::size_t>(map_.chunk_of(id).value)];
  }

  void profile_stages(const model::MicroBatch& example) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(example.rows()));
    std::iota(ids.begin(), ids.end(), std::int64_t{0});
    context_.sample_ids = ids;
    model::NamedTensors named;
    for (const auto& [name, tensor] : example.named) {
      named.emplace(name, Tensor::empty(context_, tensor.shape(), tensor.dtype()));
    }
    context_.named_inputs = &named;
    StageFeed feed;
    feed.inputs =
        as_inputs(context_, shapes_of(example.inputs, context_), config_.precision.weights);
    const int last = map_.num_stages() - 1;
    for (int s = 0; s <= last; ++s) {
      if (s == last) {
        feed.labels = shapes_of(example.labels, context_);
        feed.end = ModelEnd{.loss = module_.loss.get()};
      }
      feed.pieces = edge_pieces(config_, map_, StageId(s));
      profiles_.push_back(profile_stage(stage(StageId(s)), context_, feed));
      feed = {.inputs = std::exchange(profiles_.back().outputs_sent, {}),
              .needs_grad = profiles_.back().output_needs_grad,
              .whole_inputs = profiles_.back().whole_outputs,
              .pieces = {},
              .labels = {},
              .end = std::nullopt};
    }
    context_.sample_ids = {};
    context_.named_inputs = nullptr;
    widen_gradients();
  }

  // A gradient may come as a view into a larger storage, which counts whole.
  void widen_gradients() {
    for (std::size_t s = profiles_.size() - 1; s > 0; --s) {
      const StageProfile& later = profiles_[s];
      StageProfile& earlier = profiles_[s - 1];
      for (std::size_t i = 0; i < earlier.output_grad_items.size(); ++i) {
        std::int64_t& bytes = earlier.bytes[static_cast<std::size_t>(earlier.output_grad_items[i])];
        for (const auto* items : {&later.input_grad_items, &later.split_input_grad_items}) {
          bytes = std::max(bytes, later.bytes[static_cast<std::size_t>((*items)[i])]);
        }
      }
    }
  }

  std::int64_t workspace(const schedule::Schedule& stream) const {
    const bool full = contains(stream, Opcode::kBackwardPass);
    const bool split = contains(stream, Opcode::kBackwardInput);
    std::int64_t most = 0;
    for (const StageId stage : map_.stages_of(stream.rank())) {
      const StageProfile& profile = profiles_[static_cast<std::size_t>(stage.value)];
      most = std::max(most, profile.forward_workspace);
      if (full) most = std::max(most, profile.backward_workspace);
      if (split) most = std::max(most, profile.split_backward_workspace);
    }
    return most;
  }

  static std::int64_t weight_bytes(const Stages& stages) {
    std::unordered_set<const Storage*> seen;
    std::int64_t bytes = 0;
    for (const auto& stage : stages) {
      for (const model::StageParameter& parameter : stage->parameters()) {
        const Storage* storage = parameter.parameter->value.storage().get();
        if (seen.insert(storage).second) bytes += static_cast<std::int64_t>(storage->bytes());
      }
    }
    return bytes;
  }

  std::int64_t optimizer_bytes(const Stages& stages) const {
    Updater updater(config_, stages, context_, share_);
    std::int64_t bytes = 0;
    for (const ParameterState& state : updater.states()) {
      for (const Tensor& tensor : state.state) {
        bytes += static_cast<std::int64_t>(tensor.storage()->bytes());
      }
    }
    return bytes;
  }

  // What FlatReducer allocates to sum gradients in another dtype, or scaled before.
  std::int64_t conversion_bytes(const Stages& stages) const {
    const PrecisionConfig& precision = config_.precision;
    const tensor::DType sent = precision.communication.value_or(precision.gradients);
    const ReductionConfig& reduction = config_.reduction;
    const bool scaled = !reduction.prescale && reduction.predivide_factor != 1.0;
    std::int64_t all = 0, largest = 0, largest_scaled = 0;
    for (const auto& stage : stages) {
      for (const model::FlatWeights& weights : stage->flat_weights()) {
        const auto bytes_as = [&weights](tensor::DType dtype) {
          return weights.elements() * static_cast<std::int64_t>(tensor::size_of(dtype));
        };
        all += bytes_as(sent);
        largest = std::max(largest, bytes_as(sent));
        if (scaled) largest_scaled = std::max(largest_scaled, bytes_as(precision.gradients));
      }
    }
    if (sent == precision.gradients || replicas_ == 1) return largest_scaled;
    // With ZeRO stage 2 a piece is summed before the next one begins.
    return config_.zero.stage == 2 ? std::max(largest, largest_scaled) : all + largest_scaled;
  }

  // What GradientReducer allocates: a part for each of the rank's uses to send, and what all
  // members of the tie send.
  std::int64_t tie_bytes(schedule::PipeRank rank) const {
    std::map<std::string, std::map<int, std::int64_t>> uses;  // by key and rank
    for (int stage = 0; stage < map_.num_stages(); ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      for (std::int64_t layer = bounds_[at]; layer < bounds_[at + 1]; ++layer) {
        const std::string& key = module_.layers[static_cast<std::size_t>(layer)].tie_key;
        if (!key.empty()) ++uses[key][map_.rank_of(StageId(stage)).value];
      }
    }
    std::int64_t bytes = 0;
    for (const auto& [key, users] : uses) {
      if (users.size() < 2 || !users.contains(rank.value)) continue;
      std::int64_t most = 0;
      for (const auto& [user, count] : users) most = std::max(most, count);
      bytes += most * (1 + std::ssize(users)) * trained_bytes(rank, key);
    }
    return bytes;
  }

  // Of the trained weights of a tie, as far as this rank uses it.
  std::int64_t trained_bytes(schedule::PipeRank rank, const std::string& key) const {
    std::int64_t bytes = 0;
    for (const auto& stage : stages_[static_cast<std::size_t>(rank.value)]) {
      for (const model::StageParameter& parameter : stage->parameters()) {
        if (parameter.tie_key != key || parameter.uses.empty() || parameter.borrowed) continue;
        bytes += parameter.parameter->value.numel() *
                 static_cast<std::int64_t>(tensor::size_of(stage->grad_dtype()));
      }
    }
    return bytes;
  }

  const model::Module& module_;
  const Config& config_;
  std::span<const std::int64_t> bounds_;
  schedule::StageMap map_;
  int replicas_;
  Share share_;
  model::Context context_;
  std::vector<Stages> stages_;  // by rank, then chunk
  std::vector<StageProfile> profiles_;
};

}  // namespace

std::int64_t RankMemory::total() const {
  return pipe_buffers.total() + weights + gradients + optimizer + ties + workspace;
}

std::vector<RankMemory> plan_memory(const model::Module& module, const Config& config,
                                    std::span<const std::int64_t> bounds,
                                    std::span<const schedule::Schedule* const> streams,
                                    const model::MicroBatch& example, const PipePlace& place) {
  std::vector<RankMemory> ranks;
  if (streams.empty()) return ranks;
  const Planner planner(module, config, bounds, *streams.front(), example, place);
  for (const schedule::Schedule* stream : streams) ranks.push_back(planner.plan(*stream));
  return ranks;
}

std::vector<RankMemory> plan_training(const model::Module& module, const Config& config, int ranks,
                                      const model::MicroBatch& example) {
  const BatchTriple batch = resolve_batch(
      config.batch, data_parallel_size(ranks, config.pipeline.stages, config.tensor_parallel.size));
  const auto micro_batches = static_cast<int>(batch.gradient_accumulation_steps);
  std::optional<FoundSchedule> found;
  if (is_auto(config.pipeline) && !config.pipeline.cost_file.empty()) {
    found = search_with_file(config.pipeline, micro_batches);
  }
  const PipePlace first{
      .replicas = static_cast<int>(batch.train_batch_size / batch.train_micro_batch_size_per_gpu /
                                   batch.gradient_accumulation_steps)};
  if (is_auto(config.pipeline) && !found) {
    const schedule::StageMap map = auto_map(config.pipeline);
    std::vector<schedule::PipeRank> all;
    for (int rank = 0; rank < map.num_ranks(); ++rank) all.emplace_back(rank);
    return plan_any_order(module, config, cut_module(module, config, map), map, all, micro_batches,
                          example, first);
  }
  std::vector<std::unique_ptr<schedule::Schedule>> pipe;
  std::vector<const schedule::Schedule*> streams;
  for (int rank = 0; rank < config.pipeline.stages; ++rank) {
    pipe.push_back(
        make_train_stream(config.pipeline, nullptr, found, micro_batches, schedule::PipeRank(rank))
            .schedule);
    streams.push_back(pipe.back().get());
  }
  const model::Bounds bounds = cut_module(module, config, pipe.front()->stage_map());
  return plan_memory(module, config, bounds, streams, example, first);
}

std::string to_text(std::span<const RankMemory> ranks) {
  std::vector<std::vector<std::string>> rows = {{"rank", "weights", "gradients", "optimizer",
                                                 "ties", "tape", "data", "pipe gradients",
                                                 "in flight", "workspace", "total"}};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankMemory& memory = ranks[rank];
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(std::to_string(rank));
    // "1,234.5 KiB" would hide what tests and people compare.
    for (const std::int64_t bytes :
         {memory.weights, memory.gradients, memory.optimizer, memory.ties,
          memory.pipe_buffers[Holding::kTape], memory.pipe_buffers[Holding::kData],
          memory.pipe_buffers[Holding::kGradients], memory.pipe_buffers[Holding::kInFlight],
          memory.workspace, memory.total()}) {
      row.push_back(grouped(bytes));
    }
  }
  return text_table(rows);
}

}  // namespace penstock::engine
