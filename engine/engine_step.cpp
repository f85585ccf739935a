// The step protocol: fetch, vote, run the stream, share the losses.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/engine_state.h"
#include "engine/loader.h"
#include "engine/report.h"
#include "engine/streams.h"

namespace penstock::engine {

TrainResult Engine::State::train() {
  require_usable();
  if (rank->updater == nullptr) {
    throw ConfigError(
        "[train_batch] expected an optimizer in the configuration, got none; add "
        "\"optimizer\", or use eval_batch");
  }
  begin_step();
  begin_probing();
  Batch& run = rank->batch;
  run = {};
  run.training = true;
  run.first_sample = samples;
  run.rows = batch.train_micro_batch_size_per_gpu;
  run.micro_batches = static_cast<int>(batch.gradient_accumulation_steps);
  prepare(CallKind::kTrain, data.get(), source_position);

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
  source_position += batch.train_batch_size;
  TrainResult result;
  result.step = steps;
  result.grad_norm = update.grad_norm;
  result.skipped = update.skipped;
  result.lr = update.lr;
  result.loss = run.losses.mean();
  result.replica_loss = run.losses.replica_mean();
  result.micro_losses = run.losses.micro();
  result.extras = run.losses.extras();
  result.micro_extras = run.losses.micro_extras();
  report_step(result);
  return result;
}

EvalResult Engine::State::evaluate(model::DataSource& source, const EvalOptions& eval_options) {
  require_usable();
  Batch& run = rank->batch;
  run = {};
  run.training = false;
  run.rows = batch.train_micro_batch_size_per_gpu;
  run.micro_batches = eval_micro_batches(eval_options);
  const std::int64_t position = rank->loads_data() ? source.position() : 0;
  try {
    prepare(CallKind::kEval, &source, position);
  } catch (const std::exception&) {
    if (rank->loads_data()) source.seek(position);
    throw;
  }

  if (eval_schedule == nullptr || eval_schedule->num_micro_batches() != run.micro_batches) {
    eval_schedule = make_eval_stream(rank->map, run.micro_batches, rank->pipe_rank);
  }
  run_stream(*eval_schedule);
  // Last: what the source throws here leaves no other rank waiting.
  if (rank->loads_data()) {
    source.seek(position + run.rows * run.micro_batches * rank->comms.data().size());
  }
  EvalResult result{.loss = run.losses.mean(),
                    .replica_loss = run.losses.replica_mean(),
                    .micro_losses = run.losses.micro(),
                    .extras = run.losses.extras(),
                    .micro_extras = run.losses.micro_extras()};
  report_eval(result);
  return result;
}

int Engine::State::eval_micro_batches(const EvalOptions& eval_options) const {
  return eval_options.micro_batches != 0 ? eval_options.micro_batches
                                         : static_cast<int>(batch.gradient_accumulation_steps);
}

void Engine::State::prepare(CallKind kind, model::DataSource* source, std::int64_t position) {
  Batch& run = rank->batch;
  Ballot mine = ballot(kind);
  mine.wanted = run.micro_batches;
  if (run.micro_batches < 0) {
    mine.error = "expected a number of micro batches, or 0 for as many as in training, got " +
                 std::to_string(run.micro_batches);
  } else if (rank->loads_data()) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      if (source == nullptr) {
        throw tensor::InvalidArgument(
            "there is no data source on this rank; give one to the "
            "Engine or to set_data()");
      }
      FetchResult fetched = fetch(*source, {.first = position,
                                            .rows = run.rows,
                                            .micro_batches = run.micro_batches,
                                            .replica = rank->comms.data().rank(),
                                            .replicas = rank->comms.data().size()});
      mine.available = static_cast<std::int64_t>(fetched.micro_batches.size());
      mine.position = position;
      mine.data_shortage = std::move(fetched.shortage);
      run.loaded = std::move(fetched.micro_batches);
      timers.add(Timer::kBatchInput, begin);
      weigh();
    } catch (const std::exception& error) {
      mine.error = error_text(error);
    }
  }
  vote(world, mine);
  run.number = ++batches;
  run.losses.reset(run.micro_batches);
}

void Engine::State::weigh() {
  Batch& run = rank->batch;
  if (rank->owns_first_stage() && !run.loaded.empty()) {
    const tensor::Tensor& first = run.loaded.front().inputs.front();
    tokens_per_sample = is_floating(first.dtype()) ? 0 : first.numel() / run.rows;
  }
  if (!rank->owns_last_stage()) return;
  const model::Loss* loss = rank->module.loss.get();
  for (const model::MicroBatch& loaded : run.loaded) {
    const double weight =
        loss == nullptr ? static_cast<double>(loaded.rows()) : loss->weight(loaded.labels);
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
    share_losses();
  } catch (const std::exception& error) {
    give_up(error_text(error));
    throw;
  } catch (...) {
    give_up("something was thrown that is not a std::exception");
    throw;
  }
}

void Engine::State::share_losses() {
  Batch& run = rank->batch;
  if (rank->owns_last_stage()) {
    run.losses.average(run.weights, run.total_weight, rank->comms.data());
  }
  const schedule::StageId last(rank->map.num_stages() - 1);
  run.losses.broadcast(rank->context, rank->comms.pipe(), rank->map.rank_of(last).value);
}

}  // namespace penstock::engine
