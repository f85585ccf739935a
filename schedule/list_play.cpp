#include "schedule/list_play.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

namespace penstock::schedule {
namespace {

// One play of the pipe. From the end, time and all dependencies run the other way: W comes first
// and begins to hold the activation, F comes last and frees it, and micro batches descend.
class Play {
 public:
  Play(const PassGraph& graph, const ListPolicy& policy)
      : graph_(graph),
        policy_(policy),
        back_(policy.from_the_end),
        holds_(back_ ? graph.kinds - 1 : kF),
        frees_(back_ ? kF : graph.kinds - 1),
        done_(at(graph.kinds * graph.stages)),
        ready_(at(graph.kinds * graph.stages) * at(graph.micro_batches), kNever),
        channel_free_(at(graph.num_channels)),
        ranks_(at(graph.ranks)) {
    order_.resize(at(graph.ranks));
    for (int kind = 0; kind < graph.kinds; ++kind) {
      for (int stage = 0; stage < graph.stages; ++stage) {
        const Pass first = (kind * graph.stages + stage) * graph.micro_batches;
        if (input_stage(first) >= 0) continue;
        std::fill_n(ready_.begin() + first, graph.micro_batches, 0.0);
      }
    }
  }

  std::vector<std::vector<Pass>> run() {
    for (int rank = 0; rank < graph_.ranks; ++rank) wake(rank, 0.0);
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      if (time != ranks_[at(rank)].wakes_at) continue;  // it was woken earlier
      ranks_[at(rank)].wakes_at = kNever;
      decide(rank, time);
    }
    if (back_) {
      for (std::vector<Pass>& row : order_) std::ranges::reverse(row);
    }
    return std::move(order_);
  }

 private:
  struct RankState {
    double free_at = 0.0;
    double wakes_at = kNever;
  };
  struct Choice {
    Pass pass = -1;
    double urgency = kNever;
    double ready = kNever;

    bool better_than(const Choice& other) const {
      return std::tie(urgency, ready) < std::tie(other.urgency, other.ready);
    }
  };
  int input_stage(Pass pass) const {
    return back_ ? graph_.next_stage(pass) : graph_.previous_stage(pass);
  }
  int output_stage(Pass pass) const {
    return back_ ? graph_.previous_stage(pass) : graph_.next_stage(pass);
  }
  int& done(int kind, int stage) { return done_[at(kind * graph_.stages + stage)]; }

  void wake(int rank, double time) {
    RankState& state = ranks_[at(rank)];
    time = std::max(time, state.free_at);
    if (time >= state.wakes_at) return;
    state.wakes_at = time;
    events_.emplace(time, rank);
  }

  // Micro batches (in the order of the play) that all stages of the rank have finished.
  int finished(int rank) {
    int result = graph_.micro_batches;
    for (const int stage : graph_.of_rank[at(rank)]) result = std::min(result, done(frees_, stage));
    return result;
  }

  // Whether the rank may hold one more activation of the stage. The rank must be able to finish its
  // micro batches one after the other: for each one, what it and later ones hold, and what it has
  // yet to hold, must fit when all earlier ones are gone. That sum falls from one micro batch to
  // the next but where a stage begins to hold nothing, so these and the oldest are looked at.
  bool may_hold(int rank, int stage, int oldest) {
    const int count = done(holds_, stage);
    if (!policy_.stage_limit.empty() &&
        count - done(frees_, stage) >= policy_.stage_limit[at(stage)]) {
      return false;
    }
    if (graph_.problem.limit.none()) return true;
    if (count > oldest && !fits(rank, stage, oldest)) return false;
    for (const int other : graph_.of_rank[at(rank)]) {
      const int first = done(holds_, other);
      if (first > oldest && first < count && !fits(rank, stage, first)) return false;
    }
    return true;
  }

  // Whether one more activation of `stage` leaves enough to finish the micro batch.
  bool fits(int rank, int stage, int micro_batch) {
    int activations = 1;
    double bytes = graph_.bytes[at(stage)];
    for (const int other : graph_.of_rank[at(rank)]) {
      const int held = done(holds_, other) - std::max(done(frees_, other), micro_batch);
      const int needed = held > 0 ? held : done(holds_, other) <= micro_batch ? 1 : 0;
      activations += needed;
      bytes += needed * graph_.bytes[at(other)];
    }
    return graph_.problem.limit.allows(PipeRank{rank}, activations, bytes);
  }

  // The pass that a stage would run next, of a kind; -1 if its other passes must come first.
  Pass candidate(int kind, int stage) {
    const int count = done(kind, stage);
    if (count == graph_.micro_batches) return -1;
    if (kind != holds_ && done(back_ ? kind + 1 : kind - 1, stage) <= count) return -1;
    const int micro_batch = back_ ? graph_.micro_batches - 1 - count : count;
    return (kind * graph_.stages + stage) * graph_.micro_batches + micro_batch;
  }

  void decide(int rank, double now) {
    const double horizon = now + policy_.patience + graph_.rounding;
    const int oldest = finished(rank);
    Choice best;
    double soonest = kNever;
    for (const int stage : graph_.of_rank[at(rank)]) {
      for (int kind = 0; kind < graph_.kinds; ++kind) {
        const Pass pass = candidate(kind, stage);
        if (pass < 0) continue;
        const Choice choice{pass, policy_.urgency[at(pass)], ready_[at(pass)]};
        if (!choice.better_than(best) || choice.ready == kNever) continue;
        if (kind == holds_ && !may_hold(rank, stage, oldest)) continue;
        if (choice.ready > horizon) {
          soonest = std::min(soonest, choice.ready);
        } else {
          best = choice;
        }
      }
    }
    if (best.pass >= 0 && best.ready <= now) {
      start(rank, best.pass, now);
    } else if (const double until = std::min(soonest, best.ready); until < kNever) {
      wake(rank, until);
    }
  }

  void start(int rank, Pass pass, double now) {
    const int kind = graph_.kind_of(pass), stage = graph_.stage_of(pass);
    RankState& state = ranks_[at(rank)];
    const double end = now + graph_.length(pass);
    ++done(kind, stage);
    state.free_at = end;
    order_[at(rank)].push_back(pass);
    wake(rank, end);
    const int next = output_stage(pass);
    if (next < 0) return;
    const double arrival = graph_.transfer(kind, stage, next, end, channel_free_);
    ready_[at(pass + (next - stage) * graph_.micro_batches)] = arrival;
    wake(graph_.owner[at(next)], arrival);
  }

  const PassGraph& graph_;
  const ListPolicy& policy_;
  const bool back_;
  const int holds_;  // the kind of pass that begins to hold an activation
  const int frees_;
  std::vector<int> done_;      // passes, by kind and stage
  std::vector<double> ready_;  // when the input is there, by pass
  std::vector<double> channel_free_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<Pass>> order_;
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

std::vector<std::vector<Pass>> play(const PassGraph& graph, const ListPolicy& policy) {
  return Play(graph, policy).run();
}

}  // namespace penstock::schedule
