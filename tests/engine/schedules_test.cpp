// Every schedule trains as one stage does, whatever the ranks, chunks and micro batches.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "tests/engine/schedule_runs.h"

namespace penstock::testing {
namespace {

using schedule::ScheduleInfo;

constexpr int kSteps = 20;

// A run on one stage, made once.
const ScheduleOutcome& one_stage(const Subject& subject, int gas) {
  static std::map<std::pair<std::string, int>, ScheduleOutcome> runs;
  const auto [found, added] = runs.try_emplace({subject.name, gas});
  if (added) found->second = train(subject, {.gas = gas, .steps = kSteps});
  return found->second;
}

// The runs of a schedule here: all of them, but for what its constraints rule out.
std::vector<ScheduleRun> runs_of(const ScheduleInfo& info) {
  std::vector<ScheduleRun> runs;
  for (const int pipe : {2, 3, 4}) {
    for (const int chunks : {1, 2, 3}) {
      if (info.chunks != 0 && chunks != info.chunks) continue;
      for (const int gas : std::set<int>{1, pipe - 1, pipe, 2 * pipe, 3 * pipe + 1}) {
        if (info.name == "dualpipev" && gas < 2 * pipe) continue;
        runs.push_back({.schedule = std::string(info.name),
                        .pipe = pipe,
                        .chunks = chunks,
                        .gas = gas,
                        .steps = kSteps});
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

void check(const ScheduleInfo& info, const Subject& subject) {
  bool any_out_of_order = false;
  for (const ScheduleRun& run : runs_of(info)) {
    SCOPED_TRACE(run.text());
    const ScheduleOutcome outcome = train(subject, run);
    EXPECT_EQ(outcome.stages, run.pipe * run.chunks);
    EXPECT_EQ(outcome.losses.size(), static_cast<std::size_t>(kSteps));
    expect_equal_training(outcome, one_stage(subject, run.gas));
    any_out_of_order = any_out_of_order || !outcome.in_order;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(any_out_of_order, !keeps_order(info.name));
}

class EverySchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, TrainsAnMlpAsOneStageDoes) {
  check(schedule::schedule_info(GetParam()), mlp12());
}

TEST_P(EverySchedule, TrainsATiedGptAsOneStageDoes) {
  check(schedule::schedule_info(GetParam()), gpt12());
}

// The one for a single stage, and what only runs forward, are left out.
std::vector<std::string> pipelined() {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : schedule::registered_schedules()) {
    if (info.trains && info.name != "data_parallel") names.emplace_back(info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EverySchedule, ::testing::ValuesIn(pipelined()),
                         [](const auto& schedule) { return schedule.param; });

}  // namespace
}  // namespace penstock::testing
