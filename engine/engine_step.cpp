// The step protocol: fetch, vote, run the stream, share the losses.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/engine_state.h"
#include "engine/hash.h"
#include "engine/loader.h"
#include "engine/mean_outputs.h"
#include "engine/report.h"
#include "engine/streams.h"

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

}  // namespace

TrainResult Engine::State::train(model::DataSource* given) {
  require_usable();
  if (rank->updater == nullptr) {
    throw ConfigError(
        "[train_batch] expected an optimizer in the configuration, got none; add "
        "\"optimizer\", or use eval_batch");
  }
  begin_step();
  // What does not load asks no source for anything.
  model::DataSource* read = rank->loads_data() ? given : nullptr;
  TrainResult result = reading(read, [&] { return train_from(given); });
  // Last: what the source throws here leaves no other rank waiting.
  if (read != nullptr) read->seek(source_position);
  return result;
}

TrainResult Engine::State::train_from(model::DataSource* given) {
  begin_probing();
  Batch& run = rank->batch;
  run = {};
  run.training = true;
  run.first_sample = samples;
  run.rows = batch.train_micro_batch_size_per_gpu;
  run.micro_batches = static_cast<int>(batch.gradient_accumulation_steps);
  const bool replaced = given != nullptr;
  const std::int64_t position =
      prepare(CallKind::kTrain, replaced ? given : source,
              replaced && rank->loads_data() ? given->position() : source_position);

  rank->context.random.step = static_cast<std::uint64_t>(steps);
  run_stream(*train_schedule);

  const UpdateResult& update = rank->updater->last();
  if (update.skipped && config.non_finite_gradients == NonFiniteGradients::kStop) {
    throw NonFiniteError("[train_batch] the gradient norm of step " + std::to_string(steps + 1) +
                         " is not finite; nothing changed, since non_finite_gradients is \"stop\"");
  }
  ++steps;
  end_probing();
  if (update.skipped) {
    ++skipped;
    if (world.rank() == 0) {
      log(tensor::LogLevel::kWarning,
          "step " + std::to_string(steps) + ": the gradient norm is not finite; nothing updated",
          steps);
    }
  }
  samples += batch.train_batch_size;
  source_position = position + batch.train_batch_size;
  if (replaced) source = given;
  TrainResult result = train_result();
  report_step(result);
  return result;
}

TrainResult Engine::State::train_result() const {
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
          .lr = update.lr};
}

EvalResult Engine::State::evaluate(model::DataSource& from, const EvalOptions& eval_options) {
  require_usable();
  model::DataSource* read = rank->loads_data() ? &from : nullptr;
  std::int64_t end = 0;
  EvalResult result = reading(read, [&] {
    Batch& run = rank->batch;
    run = {};
    run.training = false;
    run.rows = eval_options.rows != 0 ? eval_options.rows : batch.train_micro_batch_size_per_gpu;
    run.micro_batches = eval_micro_batches(eval_options);
    run.eval = eval_options;
    end = prepare(CallKind::kEval, &from, read == nullptr ? 0 : read->position()) +
          run.rows * run.micro_batches * rank->comms.data().size();
    if (eval_schedule == nullptr || eval_schedule->num_micro_batches() != run.micro_batches) {
      eval_schedule = make_eval_stream(rank->map, run.micro_batches, rank->pipe_rank);
    }
    run_stream(*eval_schedule);
    return eval_result();
  });
  if (read != nullptr) read->seek(end);
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
  result.mean_outputs = std::move(run.mean_outputs);
  run.outputs.clear();
  return result;
}

int Engine::State::eval_micro_batches(const EvalOptions& eval_options) const {
  return eval_options.micro_batches != 0 ? eval_options.micro_batches
                                         : static_cast<int>(batch.gradient_accumulation_steps);
}

std::int64_t Engine::State::prepare(CallKind kind, model::DataSource* from, std::int64_t position) {
  Batch& run = rank->batch;
  Ballot mine = ballot(kind);
  mine.wanted = run.micro_batches;
  mine.options = options_number(run);
  try {
    check_sizes(run);
    if (rank->loads_data()) load(mine, from, position);
  } catch (const std::exception& error) {
    mine.error = error_text(error);
  }
  const std::int64_t begin = vote(world, mine);
  run.number = ++batches;
  run.losses.reset(run.micro_batches);
  if (run.eval.outputs != EvalOutputs::kNone && rank->owns_last_stage()) {
    run.outputs.resize(static_cast<std::size_t>(run.micro_batches));
  }
  return begin;
}

void Engine::State::load(Ballot& mine, model::DataSource* from, std::int64_t position) {
  Batch& run = rank->batch;
  const auto begin = std::chrono::steady_clock::now();
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
  timers.add(Timer::kBatchInput, begin);
  weigh();
}

void Engine::State::weigh() {
  Batch& run = rank->batch;
  if (rank->owns_first_stage() && !run.loaded.empty()) {
    const tensor::Tensor& first = run.loaded.front().inputs.front();
    tokens_per_sample = is_floating(first.dtype()) ? 0 : first.numel() / run.rows;
  }
  if (!rank->owns_last_stage()) return;
  const model::Loss* loss = rank->module.loss.get();
  for (std::size_t m = 0; m < run.loaded.size(); ++m) {
    const model::MicroBatch& loaded = run.loaded[m];
    double weight = static_cast<double>(loaded.rows());
    try {
      if (loss != nullptr && run.eval.compute_loss) weight = loss->weight(loaded.labels);
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

void Engine::State::sum_weights() {
  Batch& run = rank->batch;
  if (!rank->owns_last_stage()) return;
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
    rank->buffers.discard();
    if (!world.aborted()) {
      world.abort({.rank = world.rank(), .message = failure});
    }
  };
  try {
    rank->schedule = &schedule;
    rank->buffers.resize(schedule);
    sum_weights();
    executor.run(*rank);
    rank->buffers.finish();
    share_results();
  } catch (const std::exception& error) {
    give_up(error_text(error));
    throw;
  } catch (...) {
    give_up("something was thrown that is not a std::exception");
    throw;
  }
}

void Engine::State::share_results() {
  Batch& run = rank->batch;
  comm::Communicator& replicas = rank->comms.data();
  if (run.eval.outputs == EvalOutputs::kMean) {
    if (rank->owns_last_stage()) {
      run.mean_outputs = mean_outputs(rank->context, run.outputs, replicas);
    }
    // Outputs may have no mean, which the last stage alone sees: no rank returns before it did.
    rank->comms.pipe().barrier().wait();
  }
  if (!run.eval.compute_loss) return;
  if (rank->owns_last_stage()) run.losses.average(run.weights, run.total_weight, replicas);
  if (!run.eval.broadcast_loss) return;
  const schedule::StageId last(rank->map.num_stages() - 1);
  run.losses.broadcast(rank->context, rank->comms.pipe(), rank->map.rank_of(last).value);
}

}  // namespace penstock::engine
