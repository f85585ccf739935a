// penstock-bench schedule: how long it takes to make, verify and simulate schedules of large pipes.
#include <iostream>
#include <string>

#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

constexpr int kRepeats = 5;

struct Subject {
  const char* name;
  int chunks;
};

constexpr Subject kSubjects[] = {{"train", 1}, {"1f1b", 1}, {"gpipe", 1}, {"interleaved_1f1b", 4},
                                 {"zb_h1", 1}, {"zb1p", 2}, {"zbv", 2},   {"dualpipev", 2}};

// Makes one rank's stream and reads all of it.
std::int64_t make_and_read(const Subject& subject, int ranks, int micro_batches) {
  const auto schedule = schedule::make_schedule(subject.name, {.ranks = ranks,
                                                               .micro_batches = micro_batches,
                                                               .chunks = subject.chunks,
                                                               .rank = schedule::PipeRank(1)});
  std::int64_t instructions = 0;
  for (const schedule::Step& step : schedule::steps(*schedule)) {
    instructions += static_cast<std::int64_t>(step.size());
  }
  return instructions;
}

}  // namespace

void bench_schedule() {
  std::int64_t instructions = 0;  // keeps the work from being left out
  Table making({"one rank of 1,024, 4,096 micro batches", "ms (target 1000)"});
  for (const Subject& subject : kSubjects) {
    const double seconds =
        median_seconds(kRepeats, [&] { instructions += make_and_read(subject, 1024, 4096); });
    making.add({std::string(subject.name) + ", " + std::to_string(subject.chunks) + " chunks",
                formatted("%.1f", seconds * 1e3)});
  }
  making.print();

  Table whole(
      {"64 ranks, 1,024 micro batches", "make, ms", "verify, ms (target 5000)", "simulate, ms"});
  for (const Subject& subject : kSubjects) {
    const schedule::ScheduleArgs args{.ranks = 64, .micro_batches = 1024, .chunks = subject.chunks};
    auto pipe = schedule::make_pipe(subject.name, args);
    const double make = median_seconds(1, [&] { pipe = schedule::make_pipe(subject.name, args); });
    const double verify = median_seconds(kRepeats, [&] { schedule::require_verified(pipe, true); });
    const schedule::Costs costs = schedule::uniform_costs(pipe[0]->num_stages(), subject.chunks);
    const double simulate = median_seconds(
        kRepeats, [&] { instructions += schedule::simulate(pipe, costs).ranks[0].messages; });
    whole.add({std::string(subject.name) + ", " + std::to_string(subject.chunks) + " chunks",
               formatted("%.0f", make * 1e3), formatted("%.0f", verify * 1e3),
               formatted("%.0f", simulate * 1e3)});
  }
  whole.print();
  if (instructions == 0) std::cout << "nothing was made\n";
}

}  // namespace penstock::tools
