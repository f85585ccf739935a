#include "schedule/trace.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace penstock::schedule {
namespace {

// (replica, gradient?, stage that receives, micro batch)
using MessageKey = std::tuple<int, bool, int, int>;

MessageKey key_of(const TraceRank& rank, const TraceSpan& span) {
  const Opcode opcode = span.instruction.opcode;
  const bool gradient = opcode == Opcode::kSendGrad || opcode == Opcode::kRecvGrad;
  int stage = span.stage.value;
  if (opcode == Opcode::kSendActivation) ++stage;
  if (opcode == Opcode::kSendGrad) --stage;
  return {rank.replica, gradient, stage, span.instruction.micro_batch.value};
}

// The mean of what was added.
struct Mean {
  double sum = 0.0;
  int count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  double value() const { return count > 0 ? sum / count : 0.0; }
};

struct StageMeans {
  Mean forward;
  Mean input;
  Mean weight;
};

void add_pass(StageMeans& stage, const TraceSpan& span) {
  const double time = span.end - span.start;
  switch (span.instruction.opcode) {
    case Opcode::kForwardPass:
      return stage.forward.add(time);
    case Opcode::kBackwardInput:
      return stage.input.add(time);
    case Opcode::kBackwardWeight:
      return stage.weight.add(time);
    case Opcode::kBackwardPass:
      stage.input.add(time / 2.0);
      return stage.weight.add(time / 2.0);
    default:
      return;
  }
}

// Time covered by the passes of a rank, each moment once though passes may overlap.
double busy_time(const std::vector<TraceSpan>& spans) {
  std::vector<std::pair<double, double>> passes;
  for (const TraceSpan& span : spans) {
    if (is_pass(span.instruction.opcode)) passes.emplace_back(span.start, span.end);
  }
  std::ranges::sort(passes);
  double busy = 0.0;
  double covered_to = passes.empty() ? 0.0 : passes.front().first;
  for (const auto& [start, end] : passes) {
    if (end <= covered_to) continue;
    busy += end - std::max(start, covered_to);
    covered_to = end;
  }
  return busy;
}

int peak_activations(const std::vector<TraceSpan>& spans) {
  std::set<std::pair<ChunkId, MicroBatchId>> alive;
  std::size_t peak = 0;
  const bool trains = std::ranges::any_of(spans, [](const TraceSpan& span) {
    return is_pass(span.instruction.opcode) && span.instruction.opcode != Opcode::kForwardPass;
  });
  for (const TraceSpan& span : spans) {
    const auto& [opcode, chunk, micro_batch, buffer] = span.instruction;
    if (opcode == Opcode::kForwardPass) {
      if (!trains) alive.clear();
      alive.emplace(chunk, micro_batch);
      peak = std::max(peak, alive.size());
    } else if (opcode == Opcode::kBackwardPass || opcode == Opcode::kBackwardWeight) {
      alive.erase({chunk, micro_batch});
    }
  }
  return static_cast<int>(peak);
}

}  // namespace

Trace make_trace(std::string title, const Timeline& timeline,
                 std::span<const std::unique_ptr<Schedule>> schedules) {
  if (timeline.ranks.size() != schedules.size()) {
    throw ScheduleError("[schedule::trace] the timeline has " +
                        std::to_string(timeline.ranks.size()) + " ranks; expected those of " +
                        std::to_string(schedules.size()) + " streams");
  }
  Trace trace{std::move(title), {}};
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    TraceRank& rank = trace.ranks.emplace_back(TraceRank{"rank " + std::to_string(r), 0, {}});
    rank.spans.reserve(timeline.ranks[r].spans.size());
    for (const Span& span : timeline.ranks[r].spans) {
      const ChunkId chunk = span.instruction.chunk;
      const StageId stage = chunk == ChunkId{} ? StageId{} : schedules[r]->stage_of(chunk);
      rank.spans.push_back({span.instruction, stage, span.step, span.start, span.end});
    }
  }
  return trace;
}

int num_chunks(const Trace& trace) {
  int most = 1;
  for (const TraceRank& rank : trace.ranks) {
    for (const TraceSpan& span : rank.spans) {
      most = std::max(most, span.instruction.chunk.value + 1);
    }
  }
  return most;
}

Trace only_replica(const Trace& trace, int replica) {
  Trace one{trace.title, {}};
  for (const TraceRank& rank : trace.ranks) {
    if (rank.replica == replica) one.ranks.push_back(rank);
  }
  if (one.ranks.empty()) {
    throw ScheduleError("[schedule::trace] " + trace.title + " has no rank of replica " +
                        std::to_string(replica));
  }
  return one;
}

std::vector<Transfer> transfers(const Trace& trace) {
  std::map<MessageKey, std::deque<std::pair<std::size_t, std::size_t>>> receives;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const std::vector<TraceSpan>& spans = trace.ranks[r].spans;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (is_receive(spans[i].instruction.opcode)) {
        receives[key_of(trace.ranks[r], spans[i])].emplace_back(r, i);
      }
    }
  }
  std::vector<Transfer> found;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const std::vector<TraceSpan>& spans = trace.ranks[r].spans;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (!is_send(spans[i].instruction.opcode) || spans[i].stage == StageId{}) continue;
      const auto waiting = receives.find(key_of(trace.ranks[r], spans[i]));
      if (waiting == receives.end() || waiting->second.empty()) continue;
      const auto [to_rank, to_span] = waiting->second.front();
      waiting->second.pop_front();
      found.push_back({r, i, to_rank, to_span});
    }
  }
  return found;
}

double TraceSummary::bubble_ratio() const {
  double idle = 0.0;
  double busy = 0.0;
  for (const Rank& rank : ranks) {
    idle += rank.idle;
    busy += rank.busy;
  }
  return busy > 0.0 ? idle / busy : 0.0;
}

TraceSummary summarize(const Trace& trace) {
  TraceSummary summary;
  bool any = false;
  double passes_end = 0.0;
  for (const TraceRank& rank : trace.ranks) {
    for (const TraceSpan& span : rank.spans) {
      summary.start = any ? std::min(summary.start, span.start) : span.start;
      summary.end = any ? std::max(summary.end, span.end) : span.end;
      any = true;
      if (is_pass(span.instruction.opcode)) passes_end = std::max(passes_end, span.end);
    }
  }
  summary.makespan = std::max(0.0, passes_end - summary.start);
  for (const TraceRank& rank : trace.ranks) {
    const double busy = busy_time(rank.spans);
    summary.ranks.push_back({busy, summary.makespan - busy, peak_activations(rank.spans)});
  }
  return summary;
}

Costs measured_costs(const Trace& trace) {
  std::map<StageId, StageMeans> stages;
  for (const TraceRank& rank : trace.ranks) {
    for (const TraceSpan& span : rank.spans) {
      if (is_pass(span.instruction.opcode)) add_pass(stages[span.stage], span);
    }
  }
  const int last = stages.empty() ? 0 : std::max(0, stages.rbegin()->first.value);
  Costs costs;
  for (int s = 0; s <= last; ++s) {
    const auto found = stages.find(StageId{s});
    if (found == stages.end() || found->second.forward.count == 0) {
      throw ScheduleError("[schedule::trace] " + trace.title + " has no forward of stage " +
                          std::to_string(s) + "; expected a trace of all stages");
    }
    const StageMeans& means = found->second;
    costs.stages.push_back({.forward = means.forward.value(),
                            .backward_input = means.input.value(),
                            .backward_weight = means.weight.value()});
  }
  return costs;
}

}  // namespace penstock::schedule
