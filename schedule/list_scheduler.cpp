#include "schedule/list_scheduler.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "schedule/list_play.h"

namespace penstock::schedule {
namespace {

// Sums of costs in another order differ by less than this share of them.
constexpr double kRounding = 1e-9;

}  // namespace

double least_bytes(const StageMap& map, const Costs& costs, PipeRank rank) {
  double bytes = 0.0;
  for (const StageId stage : map.stages_of(rank)) {
    bytes += costs.stages[at(stage.value)].activation_bytes;
  }
  return bytes;
}

PassGraph::PassGraph(ListProblem given) : problem(std::move(given)) {
  const StageMap& map = problem.map;
  ranks = map.num_ranks();
  stages = map.num_stages();
  kinds = problem.split_backward ? 3 : 2;
  micro_batches = problem.micro_batches;
  check_costs(problem.costs, stages);
  if (micro_batches < 1 || micro_batches > std::numeric_limits<Pass>::max() / stages / kinds) {
    throw ScheduleError("[list scheduler] gradient_accumulation_steps is " +
                        std::to_string(micro_batches) + " with " + std::to_string(stages) +
                        " stages; expected 1 or more, and fewer passes than 2^31");
  }
  lengths.resize(at(kinds * stages));
  for (int s = 0; s < stages; ++s) {
    const StageCosts& costs = problem.costs.stages[at(s)];
    owner.push_back(map.rank_of(StageId{s}).value);
    bytes.push_back(costs.activation_bytes);
    lengths[at(kF * stages + s)] = costs.forward;
    lengths[at(kB * stages + s)] =
        costs.backward_input + (problem.split_backward ? 0.0 : costs.backward_weight);
    if (problem.split_backward) lengths[at(kW * stages + s)] = costs.backward_weight;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    of_rank.emplace_back();
    for (const StageId stage : map.stages_of(PipeRank{rank})) of_rank.back().push_back(stage.value);
  }
  double total = problem.costs.latency;
  for (const double length : lengths) total += length;
  rounding = kRounding * total;
  number_channels();
}

void PassGraph::number_channels() {
  std::map<std::tuple<int, int, int>, int> known;  // kind, from, to
  for (const int kind : {kF, kB}) {
    for (int s = 0; s + 1 < stages; ++s) {
      const int from = owner[at(kind == kF ? s : s + 1)], to = owner[at(kind == kF ? s + 1 : s)];
      const auto number = static_cast<int>(known.size());
      channels.push_back(known.try_emplace({kind, from, to}, number).first->second);
    }
  }
  num_channels = static_cast<int>(known.size());
}

double PassGraph::message_time(int from, int to) const {
  if (owner[at(from)] == owner[at(to)]) return 0.0;
  return problem.costs.stages[at(std::min(from, to))].message_bytes *
         problem.costs.seconds_per_byte;
}

double PassGraph::latency(int from, int to) const {
  return owner[at(from)] == owner[at(to)] ? 0.0 : problem.costs.latency;
}

double PassGraph::transfer(int kind, int from, int to, double time,
                           std::vector<double>& channel_free) const {
  if (owner[at(from)] == owner[at(to)]) return time;
  double& free = channel_free[at(channels[at(kind * (stages - 1) + std::min(from, to))])];
  free = std::max(free, time) + message_time(from, to);
  return free + latency(from, to);
}

ListScheduler::ListScheduler(ListProblem problem)
    : graph_(std::make_unique<PassGraph>(std::move(problem))) {
  const ListProblem& given = graph_->problem;
  for (int rank = 0; rank < graph_->ranks; ++rank) {
    const auto stages = static_cast<int>(graph_->of_rank[at(rank)].size());
    const double bytes = least_bytes(given.map, given.costs, PipeRank{rank});
    if (given.limit.allows(PipeRank{rank}, stages, bytes)) continue;
    throw ScheduleError("[list scheduler] the memory limit of rank " + std::to_string(rank) +
                        " is less than one micro batch needs on the " + std::to_string(stages) +
                        " stages of that rank; expected at least " + std::to_string(stages) +
                        " activations and " + std::to_string(bytes) + " bytes");
  }
}

ListScheduler::~ListScheduler() = default;

const ListProblem& ListScheduler::problem() const {
  return graph_->problem;
}

int ListScheduler::num_passes() const {
  return graph_->kinds * graph_->stages * graph_->micro_batches;
}

int ListScheduler::num_kinds() const {
  return graph_->kinds;
}

Pass ListScheduler::pass(int kind, int stage, int micro_batch) const {
  return (kind * graph_->stages + stage) * graph_->micro_batches + micro_batch;
}

double ListScheduler::length(Pass pass) const {
  return graph_->length(pass);
}

// A rank cannot start before the first micro batch has come to it; and where the backward is one
// piece, its last one is followed by those of all earlier stages.
double ListScheduler::least_makespan() const {
  std::vector<double> before(at(graph_->stages)), after(at(graph_->stages));
  for (int s = 1; s < graph_->stages; ++s) {
    const double hop = graph_->message_time(s - 1, s) + graph_->latency(s - 1, s);
    before[at(s)] = before[at(s - 1)] + length(pass(kF, s - 1, 0)) + hop;
    if (graph_->kinds == 2) after[at(s)] = after[at(s - 1)] + length(pass(kB, s - 1, 0)) + hop;
  }
  double result = 0.0;
  for (const std::vector<int>& stages : graph_->of_rank) {
    double of_one = 0.0;
    for (const int stage : stages) {
      for (int kind = 0; kind < graph_->kinds; ++kind) of_one += length(pass(kind, stage, 0));
    }
    const std::size_t first = at(stages.front());
    result = std::max(result, before[first] + of_one * graph_->micro_batches + after[first]);
  }
  return result;
}

TimedOrder ListScheduler::run(const ListPolicy& policy) const {
  return timed(play(*graph_, policy));
}

TimedOrder ListScheduler::timed(std::vector<std::vector<Pass>> rows) const {
  TimedOrder result{std::move(rows), std::vector<double>(at(num_passes()), kNever)};
  std::vector<double> ready(at(num_passes()), kNever), channel_free(at(graph_->num_channels));
  std::vector<double> now(at(graph_->ranks));
  std::vector<std::size_t> position(at(graph_->ranks));
  std::vector<int> waiting;
  for (int rank = graph_->ranks - 1; rank >= 0; --rank) waiting.push_back(rank);
  int left = num_passes();
  while (!waiting.empty()) {
    const int rank = waiting.back();
    waiting.pop_back();
    const std::vector<Pass>& row = result.rows[at(rank)];
    for (; position[at(rank)] < row.size(); ++position[at(rank)], --left) {
      const Pass pass = row[position[at(rank)]];
      const int kind = graph_->kind_of(pass), stage = graph_->stage_of(pass);
      const double input = graph_->previous_stage(pass) < 0 ? 0.0 : ready[at(pass)];
      const Pass own = pass - graph_->stages * graph_->micro_batches;  // the kind before
      if (input == kNever || (kind != kF && result.start[at(own)] == kNever)) break;
      result.start[at(pass)] = std::max(now[at(rank)], input);
      const double end = now[at(rank)] = result.start[at(pass)] + graph_->length(pass);
      const int next = graph_->next_stage(pass);
      if (next < 0) continue;
      ready[at(pass + (next - stage) * graph_->micro_batches)] =
          graph_->transfer(kind, stage, next, end, channel_free);
      if (graph_->owner[at(next)] != rank) waiting.push_back(graph_->owner[at(next)]);
    }
    result.makespan = std::max(result.makespan, now[at(rank)]);
  }
  if (left != 0) {
    throw ScheduleError(
        "[list scheduler] the order locks, or lacks passes: " + std::to_string(left) + " of " +
        std::to_string(num_passes()) + " passes never run; expected one that finishes");
  }
  return result;
}

std::vector<int> ListScheduler::peak_activations(const TimedOrder& order) const {
  std::vector<int> peaks;
  for (const std::vector<Pass>& row : order.rows) {
    int held = 0, peak = 0;
    for (const Pass pass : row) {
      const int kind = graph_->kind_of(pass);
      if (kind == kF) peak = std::max(peak, ++held);
      if (kind == graph_->kinds - 1) --held;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

TimedOrder ListScheduler::order_of(const Table& table) const {
  if (table.map != graph_->problem.map || table.micro_batches != graph_->micro_batches) {
    throw ScheduleError(
        "[list scheduler] the table has the stage map " + to_text(table.map) + " and " +
        std::to_string(table.micro_batches) + " micro batches; expected those of the problem, " +
        to_text(graph_->problem.map) + " and " + std::to_string(graph_->micro_batches));
  }
  const auto add = [this](const Action& action, std::vector<Pass>& row) {
    const bool splits = graph_->kinds == 3;
    const auto pass_of = [&](int kind) {
      return pass(kind, action.stage.value, action.micro_batch.value);
    };
    switch (action.kind) {
      case ActionKind::kForward:
        row.push_back(pass_of(kF));
        return;
      case ActionKind::kBackward:
        row.push_back(pass_of(kB));
        if (splits) row.push_back(pass_of(kW));
        return;
      case ActionKind::kBackwardInput:
      case ActionKind::kBackwardWeight:
        if (!splits) {
          throw ScheduleError("[list scheduler] the table has " + to_text(action) +
                              "; expected B, since the problem does not split backwards");
        }
        row.push_back(pass_of(action.kind == ActionKind::kBackwardInput ? kB : kW));
    }
  };
  std::vector<std::vector<Pass>> rows(at(graph_->ranks));
  for (int rank = 0; rank < graph_->ranks; ++rank) {
    for (const Cell& cell : table.rows[at(rank)]) {
      for (const Action& action : cell.actions()) {
        add(action, rows[at(rank)]);
      }
    }
  }
  return timed(std::move(rows));
}

Table ListScheduler::table_of(const TimedOrder& order) const {
  const ActionKind backward =
      graph_->kinds == 3 ? ActionKind::kBackwardInput : ActionKind::kBackward;
  const ActionKind kinds[] = {ActionKind::kForward, backward, ActionKind::kBackwardWeight};
  Table table{graph_->problem.map, graph_->micro_batches, true, {}};
  for (const std::vector<Pass>& passes : order.rows) {
    Row& row = table.rows.emplace_back();
    row.reserve(passes.size());
    for (const Pass pass : passes) {
      row.emplace_back(Action{kinds[graph_->kind_of(pass)], StageId{graph_->stage_of(pass)},
                              MicroBatchId{pass % graph_->micro_batches}});
    }
  }
  return table;
}

}  // namespace penstock::schedule
