// The step protocol: fetch, vote, run the stream, share the losses.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "engine/engine_state.h"
#include "engine/hash.h"
#include "engine/loader.h"
#include "engine/mean_outputs.h"
#include "engine/merge_outputs.h"
#include "engine/micro_batch_sharing.h"
#include "engine/report.h"
#include "engine/streams.h"
#include "tensor/ops/shape.h"

namespace penstock::engine {

namespace {

// Does the work of a call that reads a source. When it throws, the source is where it was.
template <class Work>
auto reading(model::DataSource* source, const Work& work) {
  if (source == nullptr) return work();
  const std::int64_t position = source->position();
  try {
    return work();
  } catch (...) {
    source->seek(position);
    throw;
  }
}

// What the ranks must agree on beside the number of micro batches.
std::int64_t options_number(const Batch& run) {
  const EvalOptions& eval = run.eval;
  std::uint64_t hash = hash_with(kEmptyHash, static_cast<std::uint64_t>(run.rows));
  for (const int option :
       {static_cast<int>(eval.compute_loss), static_cast<int>(eval.broadcast_loss),
        static_cast<int>(eval.reduction), static_cast<int>(eval.outputs)}) {
    hash = hash_with(hash, static_cast<std::uint64_t>(option));
  }
  return static_cast<std::int64_t>(hash);
}

void check_sizes(const Batch& run) {
  const auto check = [](const char* what, std::int64_t number) {
    if (number >= 0) return;
    throw tensor::InvalidArgument(std::string("expected a number of ") + what +
                                  ", or 0 for as many as in training, got " +
                                  std::to_string(number));
  };
  check("micro batches", run.micro_batches);
  check("rows", run.rows);
}

// Labels as Loss::weight takes them: the axis that counts samples is the first.
std::vector<tensor::Tensor> rows_first(tensor::Context& context,
                                       const std::vector<tensor::Tensor>& labels,
                                       std::span<const int> axes) {
  std::vector<tensor::Tensor> result = labels;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != 0) result[i] = tensor::swap_axes(context, result[i], 0, axes[i]);
  }
  return result;
}

// Micro batch m of replica r is global micro batch m·replicas + r of those that begin at `first`.
void place_samples(Batch& run, std::int64_t first, const comm::Communicator& replicas) {
  for (std::int64_t m = 0; m < run.micro_batches; ++m) {
    const std::int64_t global = m * replicas.size() + replicas.rank();
    run.samples.push_back({first + global * run.rows, run.rows});
  }
  run.total_samples = run.rows * run.micro_batches * replicas.size();
}

}  // namespace

TrainResult Engine::State::train(model::DataSource* given) {
  begin_training("train_batch");
  // What does not load asks no source for anything.
  model::DataSource* read = rank->loads_data() ? given : nullptr;
  TrainResult result = reading(read, [&] { return train_from(given); });
  // Last: what the source throws here leaves no other rank waiting.
  if (read != nullptr) read->seek(source_position);
  return result;
}

TrainResult Engine::State::train_from(model::DataSource* given) {
  Batch& run = rank->batch;
  run.rows = batch.train_micro_batch_size_per_gpu;
  place_samples(run, samples, rank->comms.data());
  model::DataSource* from = given != nullptr ? given : source;
  const std::int64_t position = prepare(CallKind::kTrain, [&](Ballot& mine) {
    if (!rank->loads_data()) return;
    fetch_from(from, given != nullptr ? given->position() : source_position, mine);
  });
  TrainResult result = run_training("train_batch");
  source_position = position + batch.train_batch_size;
  if (given != nullptr) source = given;
  report_step(result);
  return result;
}

void Engine::State::begin_training(const char* call) {
  require_usable();
  if (rank->updater == nullptr) {
    throw ConfigError("[" + std::string(call) +
                      "] expected an optimizer in the configuration, got none; add \"optimizer\", "
                      "or use eval_batch");
  }
  begin_step();
  call_clock.begin(world);
  Batch& run = rank->batch;
  run = {};
  run.training = true;
  run.micro_batches = static_cast<int>(batch.gradient_accumulation_steps);
}

TrainResult Engine::State::run_training(const char* call) {
  begin_probing();
  rank->context.random.step = static_cast<std::uint64_t>(steps);
  run_stream(*train_schedule);

  const UpdateResult& update = rank->updater->last();
  if (update.skipped) require_to_go_on(call, update);
  ++steps;
  end_probing();
  if (update.skipped) {
    ++skipped;
    std::string text = not_finite_text(steps, update) + "; nothing updated";
    if (rank->updater->scaler().dynamic()) {
      text += "; the loss scale was " + formatted("%g", update.loss_scale) + ", is " +
              formatted("%g", rank->updater->loss_scale());
    }
    if (world.rank() == 0) log(tensor::LogLevel::kWarning, text, steps);
  }
  samples += rank->batch.total_samples;
  return train_result();
}

void Engine::State::require_to_go_on(const char* call, const UpdateResult& update) const {
  const std::string what = "[" + std::string(call) + "] " + not_finite_text(steps + 1, update);
  if (update.exhausted) {
    throw NonFiniteError(what + ", and the loss scale is at fp16.min_loss_scale, " +
                         formatted("%g", update.loss_scale) +
                         "; nothing changed: lower the learning rate, or use bf16");
  }
  // fp16 looks for its scale by way of overflows.
  if (config.non_finite_gradients == NonFiniteGradients::kSkip ||
      rank->updater->scaler().dynamic()) {
    return;
  }
  throw NonFiniteError(what + "; nothing changed, since non_finite_gradients is \"stop\"");
}

TrainResult Engine::State::train_result() {
  const UpdateResult& update = rank->updater->last();
  const LossTable& losses = rank->batch.losses;
  return {.step = steps,
          .loss = losses.mean(),
          .replica_loss = losses.replica_mean(),
          .micro_losses = losses.micro(),
          .extras = losses.extras(),
          .micro_extras = losses.micro_extras(),
          .grad_norm = update.grad_norm,
          .skipped = update.skipped,
          .lr = update.lr,
          .loss_scale = update.loss_scale,
          .outputs = std::move(rank->batch.merged_outputs)};
}

EvalResult Engine::State::evaluate(model::DataSource& from, const EvalOptions& eval_options) {
  begin_evaluation(eval_options);
  model::DataSource* read = rank->loads_data() ? &from : nullptr;
  std::int64_t end = 0;
  EvalResult result = reading(read, [&] {
    Batch& run = rank->batch;
    run.rows = eval_options.rows != 0 ? eval_options.rows : batch.train_micro_batch_size_per_gpu;
    place_samples(run, 0, rank->comms.data());
    end = run.total_samples + prepare(CallKind::kEval, [&](Ballot& mine) {
            if (read != nullptr) fetch_from(&from, read->position(), mine);
          });
    return run_evaluation();
  });
  if (read != nullptr) read->seek(end);
  return result;
}

void Engine::State::begin_evaluation(const EvalOptions& eval_options) {
  if (eval_options.losses != nullptr) eval_options.losses->clear();
  require_usable();
  call_clock.begin(world);
  Batch& run = rank->batch;
  run = {};
  run.training = false;
  run.micro_batches = eval_micro_batches(eval_options);
  run.eval = eval_options;
}

EvalResult Engine::State::run_evaluation() {
  const Batch& run = rank->batch;
  if (eval_schedule == nullptr || eval_schedule->num_micro_batches() != run.micro_batches) {
    eval_schedule = make_eval_stream(rank->map, run.micro_batches, rank->pipe_rank);
  }
  run_stream(*eval_schedule);
  EvalResult result = eval_result();
  if (run.eval.losses != nullptr) *run.eval.losses = result.micro_losses;
  call_clock.end(world);
  ++evaluated;
  report_eval(result);
  return result;
}

EvalResult Engine::State::eval_result() {
  Batch& run = rank->batch;
  const LossTable& losses = run.losses;
  EvalResult result;
  if (run.eval.compute_loss && (run.eval.broadcast_loss || rank->owns_last_stage())) {
    result.micro_losses = losses.micro();
    result.micro_extras = losses.micro_extras();
    if (run.eval.reduction == Reduction::kMean) {
      result.loss = losses.mean();
      result.replica_loss = losses.replica_mean();
      result.extras = losses.extras();
    }
  }
  if (run.eval.outputs == EvalOutputs::kMicroBatches) result.outputs = std::move(run.outputs);
  result.merged_outputs = std::move(run.merged_outputs);
  result.mean_outputs = std::move(run.mean_outputs);
  run.outputs.clear();
  return result;
}

int Engine::State::eval_micro_batches(const EvalOptions& eval_options) const {
  return eval_options.micro_batches != 0 ? eval_options.micro_batches
                                         : static_cast<int>(batch.gradient_accumulation_steps);
}

std::int64_t Engine::State::prepare(CallKind kind, const std::function<void(Ballot&)>& load) {
  Batch& run = rank->batch;
  Ballot mine = ballot(kind);
  mine.wanted = run.micro_batches;
  mine.options = options_number(run);
  try {
    check_sizes(run);
    const auto begin = std::chrono::steady_clock::now();
    load(mine);
    if (!run.loaded.empty()) timers.add(Timer::kBatchInput, begin);
    require_named_inputs(*rank);
    check_sequences(*rank);
    weigh();
  } catch (const std::exception& error) {
    mine.error = error_text(error);
  }
  const std::int64_t begin = agree(mine);
  run.number = ++batches;
  run.losses.reset(run.micro_batches);
  if (run.eval.outputs != EvalOutputs::kNone && rank->owns_last_stage()) {
    run.outputs.resize(static_cast<std::size_t>(run.micro_batches));
  }
  return begin;
}

void Engine::State::fetch_from(model::DataSource* from, std::int64_t position, Ballot& mine) {
  Batch& run = rank->batch;
  if (from == nullptr) {
    throw tensor::InvalidArgument(
        "there is no data source on this rank; give one to the Engine or to set_data()");
  }
  if (run.training && config.dataloader_drop_last) {
    position = skip_incomplete(*from, position, batch.train_batch_size);
  }
  FetchResult fetched = fetch(*from,
                              {.first = position,
                               .rows = run.rows,
                               .micro_batches = run.micro_batches,
                               .replica = rank->comms.data().rank(),
                               .replicas = rank->comms.data().size(),
                               .training = run.training,
                               .step = run.training ? steps + 1 : steps},
                              batch_function);
  mine.available = static_cast<std::int64_t>(fetched.micro_batches.size());
  mine.position = position;
  mine.data_shortage = std::move(fetched.shortage);
  run.loaded = std::move(fetched.micro_batches);
  if (run.training) note_largest(run.loaded);
}

// What has no loss weighs as many as it has rows, which are known after the vote.
void Engine::State::weigh() {
  Batch& run = rank->batch;
  const model::Loss* loss = rank->module.loss.get();
  if (!rank->owns_last_stage() || loss == nullptr || !run.eval.compute_loss) return;
  for (std::size_t m = 0; m < run.loaded.size(); ++m) {
    double weight = 0.0;
    try {
      weight = loss->weight(rows_first(rank->host, run.loaded[m].labels, run.label_axes));
    } catch (const std::exception& error) {
      throw tensor::InvalidArgument("the labels of micro batch " + std::to_string(m) + ": " +
                                    error.what());
    }
    if (!(weight >= 0.0 && std::isfinite(weight))) {
      throw tensor::InvalidArgument("the loss gave a micro batch the weight " +
                                    std::to_string(weight) + "; expected a finite weight >= 0");
    }
    run.weights.push_back(weight);
  }
}

void Engine::State::count_tokens() {
  const Batch& run = rank->batch;
  if (!rank->owns_first_stage() || run.samples.front().rows == 0) return;
  const tensor::Tensor& first = run.loaded.front().inputs.front();
  tokens_per_sample = is_floating(first.dtype()) ? 0 : first.numel() / run.samples.front().rows;
}

void Engine::State::sum_weights() {
  Batch& run = rank->batch;
  if (!rank->owns_last_stage()) return;
  if (run.weights.empty()) {
    for (const SampleRange& range : run.samples) {
      run.weights.push_back(static_cast<double>(range.rows));
    }
  }
  double total = 0.0;
  for (const double weight : run.weights) total += weight;
  if (rank->comms.data().size() > 1) {
    rank->comms.data().all_reduce_wait(std::span(&total, 1), comm::ReduceOp::kSum);
  }
  run.total_weight = total;
}

void Engine::State::run_stream(const schedule::Schedule& schedule) {
  // Whatever is thrown from here on leaves a step half done.
  const auto give_up = [this](std::string why) {
    failure = std::move(why);
    if (!world.aborted()) {
      world.abort({.rank = world.rank(), .message = failure});
    }
    try {
      world.poll();  // tells all that watch it, so that nothing under way uses the buffers any more
    } catch (const comm::CommError&) {
    }
    rank->buffers.discard();
  };
  try {
    rank->schedule = &schedule;
    rank->buffers.resize(schedule);
    share_micro_batches(*rank);
    place_named_inputs(*rank);
    count_tokens();
    sum_weights();
    executor.run(*rank);
    rank->buffers.finish();
    wait_for_device();
    share_results();
  } catch (const std::exception& error) {
    give_up(error_text(error));
    throw;
  } catch (...) {
    give_up("something was thrown that is not a std::exception");
    throw;
  }
}

// What a call gave the device is done when the call returns; what it found wrong with data is the
// fault of this call and of no later one.
void Engine::State::wait_for_device() {
  if (const auto done = rank->context.allocator->fence()) world.wait_for_device(*done);
}

void Engine::State::share_results() {
  Batch& run = rank->batch;
  comm::Communicator& replicas = rank->comms.data();
  const bool mean = run.eval.outputs == EvalOutputs::kMean;
  if (mean || run.eval.outputs == EvalOutputs::kMerged) {
    if (mean && rank->owns_last_stage()) {
      run.mean_outputs = mean_outputs(rank->host, run.outputs, replicas);
    } else if (rank->owns_last_stage()) {
      run.merged_outputs =
          merge_outputs(rank->host, std::exchange(run.outputs, {}), run.eval.merge);
    }
    // That may not be possible, which the last stage alone sees: no rank returns before it did.
    rank->comms.pipe().barrier().wait();
  }
  if (!run.eval.compute_loss) return;
  if (rank->owns_last_stage()) {
    run.losses.average(rank->context, run.weights, run.total_weight, replicas);
  }
  if (!run.eval.broadcast_loss) return;
  const schedule::StageId last(rank->map.num_stages() - 1);
  run.losses.broadcast(rank->host, rank->comms.pipe(), rank->map.rank_of(last).value);
}

}  // namespace penstock::engine
