// Every schedule trains as one stage does, whatever the ranks, chunks and micro batches.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/engine/schedule_runs.h"

namespace penstock::testing {
namespace {

#ifdef PENSTOCK_INSTRUMENTED  // a step takes ten times as long under a sanitizer or late
                              // completions
constexpr int kSteps = 2;
#else
constexpr int kSteps = 20;
#endif

// A run on one stage, made once.
const ScheduleOutcome& one_stage(const Subject& subject, int gas) {
  static std::map<std::pair<std::string, int>, ScheduleOutcome> runs;
  const auto [found, added] = runs.try_emplace({subject.name, gas});
  if (added) found->second = train(subject, {.gas = gas, .steps = kSteps});
  return found->second;
}

// All runs of a schedule: pipes of 2 to 4 ranks, up to 3 chunks, and micro batches from 1 on.
std::vector<ScheduleRun> runs_of(const std::string& schedule) {
  std::vector<ScheduleRun> runs;
  for (const int pipe : {2, 3, 4}) {
    for (const int gas : std::set<int>{1, pipe - 1, pipe, 2 * pipe, 3 * pipe + 1}) {
      for (const ScheduleRun& run : runs_of_all(pipe, 3, gas)) {
        if (run.schedule == schedule) runs.push_back(run);
      }
    }
  }
  return runs;
}

// Whether a schedule adds weight gradients in the order of the micro batches, so that its bits are
// those of one stage.
bool keeps_order(std::string_view name) {
  static const std::set<std::string_view> descending = {"gpipe_reversed", "looped_bfs"};
  return !descending.contains(name);
}

void check(const std::string& schedule, const Subject& subject) {
  const std::vector<ScheduleRun> runs = runs_of(schedule);
  EXPECT_GE(runs.size(), schedule == "dualpipev" ? 6u : 14u);
  bool any_out_of_order = false;
  for (ScheduleRun run : runs) {
    SCOPED_TRACE(run.text());
    run.steps = kSteps;
    const ScheduleOutcome outcome = train(subject, run);
    EXPECT_EQ(outcome.stages, run.stages());
    EXPECT_EQ(outcome.losses.size(), static_cast<std::size_t>(kSteps));
    expect_equal_training(outcome, one_stage(subject, run.gas));
    any_out_of_order = any_out_of_order || !outcome.in_order;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(any_out_of_order, !keeps_order(schedule));
}

class EverySchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, TrainsAnMlpAsOneStageDoes) {
  check(GetParam(), mlp(12));
}

TEST_P(EverySchedule, TrainsATiedGptAsOneStageDoes) {
  check(GetParam(), gpt12());
}

std::vector<std::string> names() {
  std::set<std::string> names;
  for (const ScheduleRun& run : runs_of_all(2, 3, 8)) names.insert(run.schedule);
  return {names.begin(), names.end()};
}

INSTANTIATE_TEST_SUITE_P(All, EverySchedule, ::testing::ValuesIn(names()),
                         [](const auto& schedule) { return schedule.param; });

}  // namespace
}  // namespace penstock::testing
