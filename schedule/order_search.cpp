#include "schedule/order_search.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <random>
#include <span>
#include <utility>

namespace penstock::schedule {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// Orders that are worked on at a time.
constexpr std::size_t kPool = 12;
constexpr double kRounding = 1e-9;
// Times each is replayed before anything is disturbed.
constexpr int kReplays = 4;

// An order with the policy that a replay of it goes by.
struct Member {
  TimedOrder order;
  ListPolicy policy;
  std::size_t scheduler = 0;  // that its times are from
  double score = 0.0;
};

class OrderSearch {
 public:
  OrderSearch(std::span<const Judge> judges, const SearchEffort& effort)
      : judges_(judges),
        scheduler_(*judges.front().scheduler),
        map_(scheduler_.problem().map),
        micro_batches_(scheduler_.problem().micro_batches),
        orders_left_(std::clamp<std::int64_t>(effort.passes / scheduler_.num_passes(),
                                              effort.least_orders, effort.most_orders)),
        random_(effort.seed) {
    for (const Judge& judge : judges) {
      least_score_ += judge.weight * judge.scheduler->least_makespan() * (1.0 + kRounding);
    }
    least_score_ = std::max(least_score_, effort.enough);
    for (int kind = 0; kind < scheduler_.num_kinds(); ++kind) {
      for (int stage = 0; stage < map_.num_stages(); ++stage) {
        const double length = scheduler_.length(scheduler_.pass(kind, stage, 0));
        longest_pass_ = std::max(longest_pass_, length);
      }
    }
  }

  TimedOrder run(std::vector<TimedOrder> known) {
    for (TimedOrder& order : known) {
      ListPolicy policy;
      policy.stage_limit = most_held(order);
      keep(judged(std::move(order), std::move(policy), 0));
    }
    for (std::int64_t left = orders_left_ / 4; left > 0 && !over(); --left) try_policy();
    if (pool_.empty()) try_policy();
    std::ranges::stable_sort(pool_, {}, &Member::score);
    for (std::size_t i = 0; i < pool_.size(); ++i) {
      for (int j = 0; j < kReplays && !over(); ++j) replay(pool_[i], pool_[i].policy);
    }
    for (int i = 1; !over(); ++i) {
      disturb(pool_[at(below(static_cast<int>(pool_.size())))]);
      if (i % 200 == 0) *worst() = *best();
    }
    return scheduler_.timed(std::move(best()->order.rows));
  }

 private:
  bool over() const { return orders_left_ <= 0 || (!pool_.empty() && best_score_ <= least_score_); }

  // Random numbers that are the same on every platform.
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1.0p-53;
  }

  std::vector<Member>::iterator best() {
    return std::ranges::min_element(pool_, {}, &Member::score);
  }
  std::vector<Member>::iterator worst() {
    return std::ranges::max_element(pool_, {}, &Member::score);
  }

  Member judged(TimedOrder order, ListPolicy policy, std::size_t scheduler) {
    double score = 0.0;
    for (std::size_t i = 0; i < judges_.size(); ++i) {
      score += judges_[i].weight *
               (i == scheduler ? order.makespan : judges_[i].scheduler->timed(order.rows).makespan);
    }
    best_score_ = std::min(best_score_, score);
    return {std::move(order), std::move(policy), scheduler, score};
  }

  void keep(Member member) {
    if (pool_.size() < kPool) {
      pool_.push_back(std::move(member));
    } else if (const auto last = worst(); member.score < last->score) {
      *last = std::move(member);
    }
  }

  Member play(ListPolicy policy, std::size_t scheduler) {
    --orders_left_;
    TimedOrder order = judges_[scheduler].scheduler->run(policy);
    return judged(std::move(order), std::move(policy), scheduler);
  }

  void try_policy() { keep(play(draw_policy(), any_scheduler())); }

  std::size_t any_scheduler() { return at(below(static_cast<int>(judges_.size()))); }

  // Urgency by kind, then by stage: later or earlier ones first, or none. Stage limits in
  // proportion to how long a stage has to hold an activation, which falls with the stage.
  ListPolicy draw_policy() {
    static constexpr std::array<std::array<int, 3>, 4> kKinds{
        {{1, 0, 2}, {0, 0, 1}, {0, 1, 2}, {1, 0, 1}}};
    const std::array<int, 3>& kind_order = kKinds[at(below(4))];
    ListPolicy policy;
    policy.from_the_end = below(2) == 1;
    if (below(3) == 0) policy.patience = between(0.0, 0.5) * longest_pass_;
    const int stages = map_.num_stages();
    policy.urgency.resize(at(scheduler_.num_passes()));
    for (int kind = 0; kind < scheduler_.num_kinds(); ++kind) {
      const int direction = below(3) - 1;
      for (int stage = 0; stage < stages; ++stage) {
        const double urgency = kind_order[at(kind)] * 2 * stages + direction * stage;
        std::fill_n(policy.urgency.begin() + scheduler_.pass(kind, stage, 0), micro_batches_,
                    policy.from_the_end ? -urgency : urgency);
      }
    }
    // What no limit holds back runs as far ahead as it can, to little use.
    if (scheduler_.problem().limit.none() || below(8) != 0) {
      policy.stage_limit = draw_stage_limit();
    }
    return policy;
  }

  std::vector<int> draw_stage_limit() {
    const int stages = map_.num_stages();
    const double flat = between(0.0, 0.5) * stages, slack = between(0.0, 4.0);
    const double wanted = between(1.0, 2.5) * stages;
    std::vector<int> result(at(stages));
    for (int rank = 0; rank < map_.num_ranks(); ++rank) {
      const auto of_rank = map_.stages_of(PipeRank{rank});
      double sum = 0.0;
      for (const StageId stage : of_rank) sum += flat + stages - stage.value;
      const double all = most_activations(PipeRank{rank}, wanted) + slack;
      for (const StageId stage : of_rank) {
        result[at(stage.value)] =
            std::max(1, static_cast<int>((flat + stages - stage.value) / sum * all));
      }
    }
    return result;
  }

  // How many activations a rank can hold, `wanted` at most.
  double most_activations(PipeRank rank, double wanted) const {
    const MemoryLimit& limit = scheduler_.problem().limit;
    const int chunks = map_.num_chunks(rank);
    double result = std::min(wanted, static_cast<double>(micro_batches_) * chunks);
    if (!limit.activations.empty()) {
      result = std::min(result, static_cast<double>(limit.activations[at(rank.value)]));
    }
    const double bytes = least_bytes(map_, scheduler_.problem().costs, rank);
    if (!limit.bytes.empty() && bytes > 0.0) {
      result = std::min(result, limit.bytes[at(rank.value)] / bytes * chunks);
    }
    return result;
  }

  // The policy that plays from the other end, by the times of the order.
  ListPolicy turned(const Member& member, const ListPolicy& policy) const {
    ListPolicy result = policy;
    result.from_the_end = !policy.from_the_end;
    result.urgency = member.order.start;
    if (result.from_the_end) {
      for (int pass = 0; pass < scheduler_.num_passes(); ++pass) {
        double& urgency = result.urgency[at(pass)];
        urgency = -(urgency + scheduler_.length(pass));
      }
    }
    return result;
  }

  // Replays the member from the other end; keeps the new order if it is no worse.
  void replay(Member& member, const ListPolicy& policy) {
    Member next = play(turned(member, policy), member.scheduler);
    member.policy.from_the_end = next.policy.from_the_end;
    replace(member, std::move(next));
  }

  void replace(Member& member, Member next) {
    if (next.score <= member.score * (1.0 + 1e-12)) member = std::move(next);
  }

  void disturb(Member& member) {
    ListPolicy policy = member.policy;
    if (below(2) == 0 && !policy.stage_limit.empty()) {
      for (int count = 1 + below(3); count > 0; --count) {
        int& limit = policy.stage_limit[at(below(map_.num_stages()))];
        limit = std::max(1, limit + below(3) - 1);
      }
    }
    if (below(8) == 0) {
      policy.patience = below(2) == 0 ? 0.0 : between(0.0, 0.5) * longest_pass_;
    }
    policy.from_the_end = below(2) == 0;
    policy = turned(member, policy);
    if (below(2) == 0) {
      const double most = between(0.0, 6.0) * longest_pass_;
      for (double& urgency : policy.urgency) {
        if (below(4) == 0) urgency += between(-most, most);
      }
    }
    Member changed = play(std::move(policy), any_scheduler());
    // What has come far from the best is not worth another look.
    if (changed.score > member.score + 4.0 * longest_pass_) return;
    replay(changed, changed.policy);
    replace(member, std::move(changed));
  }

  // The most activations that each stage holds when the order is run.
  std::vector<int> most_held(const TimedOrder& order) const {
    std::vector<int> held(at(map_.num_stages())), most(at(map_.num_stages()));
    for (const std::vector<Pass>& row : order.rows) {
      for (const Pass pass : row) {
        const int of_kind = pass / micro_batches_;
        const int kind = of_kind / map_.num_stages(), stage = of_kind % map_.num_stages();
        int& count = held[at(stage)];
        if (kind == 0) most[at(stage)] = std::max(most[at(stage)], ++count);
        if (kind == scheduler_.num_kinds() - 1) --count;
      }
    }
    return most;
  }

  const std::span<const Judge> judges_;
  const ListScheduler& scheduler_;  // the first judge's
  const StageMap& map_;
  const int micro_batches_;
  double least_score_ = 0.0;  // with which the search ends
  double longest_pass_ = 0.0;
  std::int64_t orders_left_;
  double best_score_ = std::numeric_limits<double>::infinity();
  std::vector<Member> pool_;
  std::mt19937_64 random_;
};

}  // namespace

TimedOrder best_order(std::span<const Judge> judges, std::vector<TimedOrder> known,
                      const SearchEffort& effort) {
  return OrderSearch(judges, effort).run(std::move(known));
}

}  // namespace penstock::schedule
