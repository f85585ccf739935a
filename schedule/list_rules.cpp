#include "schedule/list_rules.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/args.h"
#include "schedule/order_search.h"

namespace penstock::schedule {
namespace {

// Forwards that rank r runs before its first backward when it is as far ahead as it would be if
// each hop took a whole pass.
int ahead(int ranks, int micro_batches, PipeRank rank) {
  return std::min(micro_batches, 2 * (ranks - 1 - rank.value));
}

Row eager_row(int ranks, int micro_batches, PipeRank rank) {
  const int first = ahead(ranks, micro_batches, rank);
  const StageId stage{rank.value};
  Row row;
  for (int k = 0; k < micro_batches + first; ++k) {
    if (k < micro_batches) row.push_back(Action{ActionKind::kForward, stage, MicroBatchId{k}});
    if (k >= first) row.push_back(Action{ActionKind::kBackward, stage, MicroBatchId{k - first}});
  }
  return row;
}

Row zb_h2_row(int ranks, int micro_batches, PipeRank rank) {
  const int first = ahead(ranks, micro_batches, rank);
  const StageId stage{rank.value};
  Row row;
  const auto add = [&](ActionKind kind, int micro_batch) {
    if (micro_batch >= 0 && micro_batch < micro_batches) {
      row.push_back(Action{kind, stage, MicroBatchId{micro_batch}});
    }
  };
  const int put_off = std::min(2 * rank.value, micro_batches);
  for (int k = 0; k < micro_batches + first; ++k) {
    add(ActionKind::kForward, k);
    add(ActionKind::kBackwardInput, k - first);
    add(ActionKind::kBackwardWeight, k - first - put_off);
  }
  for (int k = micro_batches - put_off; k < micro_batches; ++k) {
    add(ActionKind::kBackwardWeight, k);
  }
  return row;
}

RowSource rows_of(std::string_view name, const ScheduleArgs& args,
                  Row (*row)(int ranks, int micro_batches, PipeRank)) {
  return {one_stage_per_rank(name, args), args.micro_batches, true,
          [ranks = args.ranks, micro_batches = args.micro_batches, row](PipeRank rank) {
            return row(ranks, micro_batches, rank);
          }};
}

// The slots of micro batch 0 on a rank.
struct Slots {
  int forward_0, forward_1, input_1, input_0;
};
using SlotRule = Slots (*)(int ranks, int rank);

Slots v_half_slots(int ranks, int rank) {
  const int gap = ranks % 2 == 0 ? 3 : 0;  // keeps the slots apart
  return {2 * rank, 3 * ranks - rank - 2, 3 * ranks + gap + 2 * rank - 1,
          6 * ranks + gap - rank - 2};
}

Slots v_min_slots(int ranks, int rank) {
  const int gap = ranks % 3 == 0 ? 2 : 0;
  return {rank, 2 * ranks - rank - 1, 2 * ranks + gap + rank, 4 * ranks + gap - rank - 1};
}

constexpr int kPeriod = 6;  // slots from one micro batch to the next

Row plan_row(SlotRule rule, int ranks, int micro_batches, PipeRank rank) {
  const Slots slots = rule(ranks, rank.value);
  const StageId chunk_0{rank.value}, chunk_1{2 * ranks - 1 - rank.value};
  struct Line {
    Action next;
    int slot;
  };
  using enum ActionKind;
  const MicroBatchId first{0};
  std::array<Line, 4> lines{{{{kForward, chunk_0, first}, slots.forward_0},
                             {{kForward, chunk_1, first}, slots.forward_1},
                             {{kBackwardInput, chunk_1, first}, slots.input_1},
                             {{kBackwardInput, chunk_0, first}, slots.input_0}}};
  Row row;
  std::vector<Action> weights;  // all so far
  std::size_t weights_done = 0;
  const auto length = static_cast<std::size_t>(kPeriod) * static_cast<std::size_t>(micro_batches);
  row.reserve(length);
  for (int slot = slots.forward_0; row.size() < length; ++slot) {
    const auto due = std::ranges::find(lines, slot, &Line::slot);
    if (due == lines.end()) {
      if (weights_done < weights.size()) row.emplace_back(weights[weights_done++]);
      continue;
    }
    row.emplace_back(due->next);
    if (due->next.kind == kBackwardInput) {
      weights.push_back({kBackwardWeight, due->next.stage, due->next.micro_batch});
    }
    due->slot = ++due->next.micro_batch.value < micro_batches ? slot + kPeriod : -1;
  }
  return row;
}

// Above this, the plan is all there is.
constexpr std::int64_t kMostPasses = 1'000'000;
constexpr SearchEffort kEffort{.passes = 1'000'000, .least_orders = 8, .most_orders = 1'000};

// The order of the plan, improved on at most `activations` per rank. Real costs are near to equal
// at best, and an order that is perfect when they are may be poor when they are not; so orders are
// judged at equal costs (which count twice), at F I W of 1 1.2 0.8, and with transfers of a tenth
// of a full rank's F.
Table improved(const RowSource& plan, int ranks, int activations) {
  std::vector<std::unique_ptr<ListScheduler>> schedulers;
  std::vector<Judge> judges;
  Costs costs[] = {uniform_costs(2 * ranks, 2), uniform_costs(2 * ranks, 2, 1.0, 1.2, 0.8),
                   uniform_costs(2 * ranks, 2)};
  costs[2].latency = 0.1;
  for (const Costs& each : costs) {
    schedulers.push_back(std::make_unique<ListScheduler>(ListProblem{
        .map = plan.map,
        .micro_batches = plan.micro_batches,
        .costs = each,
        .limit = {.activations = std::vector<int>(static_cast<std::size_t>(ranks), activations)}}));
    judges.push_back({schedulers.back().get(), judges.empty() ? 2.0 : 1.0});
  }
  std::vector<TimedOrder> known;
  known.push_back(schedulers.front()->order_of(make_table(plan)));
  return schedulers.front()->table_of(best_order(judges, std::move(known), kEffort));
}

RowSource v_rows(std::string_view name, const ScheduleArgs& args, SlotRule rule, int activations) {
  const RowSource plan{v_of_two_only(name, args), args.micro_batches, true,
                       [rule, ranks = args.ranks, micro_batches = args.micro_batches](
                           PipeRank rank) { return plan_row(rule, ranks, micro_batches, rank); }};
  if (std::int64_t{kPeriod} * args.ranks * args.micro_batches > kMostPasses) return plan;
  return source_of(improved(plan, args.ranks, activations));
}

}  // namespace

RowSource eager_1f1b_rows(const ScheduleArgs& args) {
  return rows_of("eager_1f1b", args, eager_row);
}

RowSource zb_h2_rows(const ScheduleArgs& args) {
  return rows_of("zb_h2", args, zb_h2_row);
}

RowSource v_half_rows(const ScheduleArgs& args) {
  return v_rows("v_half", args, v_half_slots, 2 * ((args.ranks + 2) / 2));
}

RowSource v_min_rows(const ScheduleArgs& args) {
  return v_rows("v_min", args, v_min_slots, 2 * ((args.ranks + 4) / 3));
}

}  // namespace penstock::schedule
