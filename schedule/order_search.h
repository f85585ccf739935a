// A bounded local search for an order of least makespan. Private to the generators and the search.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/list_scheduler.h"

namespace penstock::schedule {

struct SearchEffort {
  // Passes that the list scheduler may place, in all: some ten million a second. It makes at least
  // as many orders as `least_orders`, however long they are.
  std::int64_t passes = 0;
  int least_orders = 8;
  // Orders that it makes at most.
  int most_orders = 1 << 20;
  // A score that is good enough to end with.
  double enough = 0.0;
  // Of the random choices. Any does; this one finds good V-Half and V-Min orders of 8 ranks soon.
  std::uint64_t seed = 13;
};

// A score to make small: the sum of weight x makespan at the costs of each judge's scheduler. The
// problems of all are the same but for their costs.
struct Judge {
  const ListScheduler* scheduler;
  double weight = 1.0;
};

// The best order found, no worse than any of `known`, within the problem's memory limit if `known`
// are. Its times are the first judge's, which has to be there. Ends early when no order can be
// better. The same arguments give the same order.
//
// Three stages: list scheduling by many policies, both from the start and from the end; replaying
// the best orders, from the other end each time, by the times they had, which closes gaps (known as
// forward-backward improvement); and the same with some urgencies and limits disturbed.
TimedOrder best_order(std::span<const Judge> judges, std::vector<TimedOrder> known,
                      const SearchEffort& effort);

}  // namespace penstock::schedule
