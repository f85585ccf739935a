// step and eval_step: a batch that was given at once is cut into micro batches, the ranks agree on
// how many samples each has, and the stream runs as ever.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch_split.h"
#include "engine/engine_state.h"

namespace penstock::engine {

namespace {

// What every rank said of its part of the batch: its form, then the samples of each micro batch.
class Answers {
 public:
  Answers(std::vector<std::int64_t> values, std::size_t micro_batches)
      : values_(std::move(values)), micro_batches_(micro_batches) {}

  static std::vector<std::int64_t> of(const SplitBatch& mine, std::size_t micro_batches) {
    std::vector<std::int64_t> answer(1 + micro_batches, kNoAnswer);
    answer[0] = static_cast<std::int64_t>(mine.form);
    std::ranges::copy(mine.rows, answer.begin() + 1);
    return answer;
  }

  SplitBatch::Form form(int rank) const {
    return static_cast<SplitBatch::Form>(answer(rank).front());
  }
  // Empty for a rank with no say.
  std::span<const std::int64_t> rows(int rank) const {
    const auto rows = answer(rank).subspan(1);
    return rows.front() == kNoAnswer ? std::span<const std::int64_t>{} : rows;
  }

 private:
  static constexpr std::int64_t kNoAnswer = -1;

  std::span<const std::int64_t> answer(int rank) const {
    const std::size_t size = 1 + micro_batches_;
    return std::span(values_).subspan(static_cast<std::size_t>(rank) * size, size);
  }

  std::vector<std::int64_t> values_;
  std::size_t micro_batches_;
};

void check_forms(const Answers& answers, int ranks, std::size_t micro_batches) {
  std::array<int, 3> counts = {};
  for (int rank = 0; rank < ranks; ++rank) ++counts[static_cast<std::size_t>(answers.form(rank))];
  const int whole = counts[static_cast<std::size_t>(SplitBatch::Form::kWhole)];
  const int split = counts[static_cast<std::size_t>(SplitBatch::Form::kMicroBatches)];
  if (whole == 0 || split == 0) return;
  throw CallRefused("the batch is given whole on " + std::to_string(whole) + " of " +
                    std::to_string(ranks) + " ranks and as " + std::to_string(micro_batches) +
                    " micro batches on " + std::to_string(split) +
                    "; expected one form on all ranks");
}

// By replica: the samples of each micro batch, on which its ranks must agree.
std::vector<std::span<const std::int64_t>> rows_by_replica(const Answers& answers,
                                                           const comm::Grid& grid) {
  std::vector<int> speakers(static_cast<std::size_t>(grid.data_size()), -1);
  std::vector<std::span<const std::int64_t>> rows(speakers.size());
  for (int rank = 0; rank < grid.size(); ++rank) {
    const std::span<const std::int64_t> own = answers.rows(rank);
    if (own.empty()) continue;
    const auto replica = static_cast<std::size_t>(grid.position(rank).data);
    if (speakers[replica] < 0) {
      speakers[replica] = rank;
      rows[replica] = own;
      continue;
    }
    const auto [wanted, got] = std::ranges::mismatch(rows[replica], own);
    if (got == own.end()) continue;
    throw CallRefused("micro batch " + std::to_string(got - own.begin()) + " has " +
                      std::to_string(*wanted) + " samples on rank " +
                      std::to_string(speakers[replica]) + " and " + std::to_string(*got) +
                      " on rank " + std::to_string(rank) +
                      "; expected the ranks of a replica to be given the same batch");
  }
  if (std::ranges::find(speakers, -1) == speakers.end()) return rows;
  throw CallRefused(
      "no tensor of the batch is cut into micro batches; expected one with an axis that counts "
      "samples");
}

}  // namespace

void Engine::State::share_samples(const SplitBatch& mine) {
  Batch& run = rank->batch;
  const auto micro_batches = static_cast<std::size_t>(run.micro_batches);
  const Answers answers(world.all().all_gather_wait(Answers::of(mine, micro_batches)),
                        micro_batches);
  check_forms(answers, world.size(), micro_batches);
  // The samples of a replica follow those of the one before.
  std::int64_t next = run.training ? samples : 0;
  const std::int64_t begin = next;
  int replica = 0;
  for (const auto& rows_of_replica : rows_by_replica(answers, rank->grid)) {
    const bool own = replica++ == rank->comms.data().rank();
    for (const std::int64_t rows : rows_of_replica) {
      if (own) run.samples.push_back({next, rows});
      next += rows;
    }
  }
  run.total_samples = next - begin;
  if (!rank->loads_data()) return;
  for (std::size_t m = 0; m < micro_batches; ++m) run.loaded[m].ids = run.samples[m].ids();
}

void Engine::State::prepare_given(CallKind kind, const GivenBatch& given) {
  SplitBatch mine;
  prepare(kind, [&](Ballot&) {
    if (rank->batch.rows != 0) {
      throw tensor::InvalidArgument("expected EvalOptions::rows to be 0, got " +
                                    std::to_string(rank->batch.rows) +
                                    "; the batch that is given says how many rows there are");
    }
    mine = split_batch(*rank, given);
    rank->batch.loaded = std::move(mine.micro_batches);
    rank->batch.label_axes = std::move(mine.label_axes);
  });
  try {
    share_samples(mine);
  } catch (const CallRefused& refused) {
    throw CallRefused("[" + std::string(name_of(kind)) + "] " + refused.what());
  }
}

TrainResult Engine::State::step(const GivenBatch& given, const StepOptions& step_options) {
  if (step_options.losses != nullptr) step_options.losses->clear();
  begin_training("step");
  if (step_options.outputs) {
    rank->batch.eval.outputs = EvalOutputs::kMerged;
    rank->batch.eval.merge = step_options.merge;
  }
  prepare_given(CallKind::kStep, given);
  TrainResult result = run_training("step");
  if (step_options.losses != nullptr) *step_options.losses = result.micro_losses;
  report_step(result);
  return result;
}

EvalResult Engine::State::eval_step(const GivenBatch& given, const EvalOptions& eval_options) {
  begin_evaluation(eval_options);
  rank->batch.rows = eval_options.rows;
  prepare_given(CallKind::kEvalStep, given);
  return run_evaluation();
}

}  // namespace penstock::engine
