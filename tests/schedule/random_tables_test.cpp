// What lowering promises of any table that can run, on any stage map; and what else takes tables.
#include "tests/schedule/random_tables.h"

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/csv.h"
#include "schedule/list_scheduler.h"
#include "schedule/lowering.h"
#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/blind_executor.h"
#include "tests/schedule/streams.h"
#include "tests/schedule/tables.h"

namespace penstock::schedule {
namespace {

using Pipe = std::vector<std::unique_ptr<Schedule>>;

constexpr std::uint64_t kTables = 1500;
constexpr double kRounding = 1e-9;

// Another cost for every pass and transfer.
Costs random_costs(int stages, std::mt19937_64& random) {
  const auto number = [&] { return std::uniform_real_distribution<double>(0.1, 2.0)(random); };
  Costs costs;
  for (int s = 0; s < stages; ++s) {
    costs.stages.push_back({number(), number(), number(), 1.0, number()});
  }
  costs.latency = number();
  costs.seconds_per_byte = number();
  return costs;
}

// The same stream with a buffer for each micro batch, so that no claim can wait.
class WithAllBuffers final : public Schedule {
 public:
  explicit WithAllBuffers(const Schedule& stream)
      : Schedule("with_all_buffers", {.ranks = stream.num_ranks(),
                                      .micro_batches = stream.num_micro_batches(),
                                      .rank = stream.rank(),
                                      .stage_map = stream.stage_map()}),
        stream_(stream) {}
  std::int64_t num_steps() const override { return stream_.num_steps(); }

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override {
    for (Instruction i : emitted(stream_, step)) {
      if (i.micro_batch != MicroBatchId{}) i.buffer = BufferId{i.micro_batch.value};
      out.push_back(i);
    }
  }
  int do_num_pipe_buffers(ChunkId) const override { return num_micro_batches(); }

  const Schedule& stream_;
};

void check_lowered(const Table& table, const Pipe& pipe, std::uint64_t seed) {
  const Report report = verify(pipe, table.trains);
  ASSERT_TRUE(report.ok()) << report.to_text();
  std::vector<Flat> streams;
  for (const auto& stream : pipe) streams.push_back(flat(*stream));
  EXPECT_EQ(run_blindly(*pipe[0], streams, table.trains, seed), "");
  EXPECT_EQ(hash(table_of(pipe)), hash(table));
}

TEST(RandomTables, LowerToStreamsThatAreProven) {
  int uneven = 0, forward_only = 0, overlapped = 0;
  for (std::uint64_t seed = 0; seed < kTables; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Table table = RandomTable(seed).make();
    check_table(table);
    const Pipe pipe = lower_all("random", source_of(table));
    check_lowered(table, pipe, seed);
    const Table merged = merge_backward(table);
    check_lowered(merged, lower_all("merged", source_of(merged)), seed);
    if (HasFailure()) return;
    forward_only += table.trains ? 0 : 1;
    uneven += table.map.num_chunks(PipeRank{0}) * table.map.num_ranks() != table.map.num_stages();
    for (const Row& row : table.rows) {
      for (const Cell& cell : row) overlapped += cell.overlapped() ? 1 : 0;
    }
  }
  // The premise: the tables are as odd as they can be.
  EXPECT_GT(uneven, 500);
  EXPECT_GT(forward_only, 200);
  EXPECT_GT(overlapped, 200);
}

TEST(RandomTables, SimulateAsAnExecutorOfTables) {
  for (std::uint64_t seed = 0; seed < kTables; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Table table = RandomTable(seed).make();
    const Pipe pipe = lower_all("random", source_of(table));
    const FullCosts full{1.25, 0.5, 0.75};
    const Played played = play(table, full);
    ASSERT_TRUE(played.complete) << played.stuck;
    const Timeline timeline = simulate(
        pipe, uniform_costs(table.map.num_stages(), 1, full.forward, full.input, full.weight));
    ASSERT_EQ(timeline.makespan, played.makespan);
    for (std::size_t rank = 0; rank < pipe.size(); ++rank) {
      const RankTimeline& of_rank = timeline.ranks[rank];
      if (table.trains) {
        EXPECT_EQ(of_rank.peak_activations, played.peaks[rank]);
      }
      for (int c = 0; c < pipe[rank]->num_chunks(); ++c) {
        EXPECT_LE(of_rank.peak_buffers_of_chunk[static_cast<std::size_t>(c)],
                  pipe[rank]->num_pipe_buffers(ChunkId{c}));
      }
    }
    if (HasFailure()) return;
  }
}

TEST(RandomTables, NeverWaitForBuffers) {
  for (std::uint64_t seed = 0; seed < 3 * kTables; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Table table = RandomTable(seed).make();
    const Pipe pipe = lower_all("random", source_of(table));
    Pipe roomy;
    for (const auto& stream : pipe) roomy.push_back(std::make_unique<WithAllBuffers>(*stream));
    std::mt19937_64 random(seed);
    Costs costs = random_costs(table.map.num_stages(), random);
    costs.overlap = seed % 2 == 0;
    ASSERT_NEAR(simulate(pipe, costs).makespan, simulate(roomy, costs).makespan, kRounding);
  }
}

TEST(RandomTables, TakeAsLongInTheListScheduler) {
  for (std::uint64_t seed = 0; seed < kTables; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Table table = RandomTable(seed).make();
    if (!table.trains) continue;
    std::mt19937_64 random(seed);
    const Costs costs = random_costs(table.map.num_stages(), random);
    const ListScheduler scheduler({table.map, table.micro_batches, costs});
    const TimedOrder order = scheduler.order_of(table);
    const Pipe pipe = lower_all("order", source_of(scheduler.table_of(order)));
    ASSERT_NEAR(simulate(pipe, costs).makespan, order.makespan, kRounding);
    std::vector<int> peaks;
    for (const RankTimeline& rank : simulate(pipe, costs).ranks) {
      peaks.push_back(rank.peak_activations);
    }
    ASSERT_EQ(peaks, scheduler.peak_activations(order));
  }
}

TEST(RandomTables, AreTheSameFromCsv) {
  for (std::uint64_t seed = 0; seed < kTables; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Table table = RandomTable(seed).make();
    for (const CsvTransfers placed :
         {CsvTransfers::kNone, CsvTransfers::kEarly, CsvTransfers::kLate}) {
      const Table back = parse_csv(to_csv(table, placed));
      ASSERT_EQ(back.map, table.map);
      ASSERT_EQ(hash(back), hash(table));
    }
  }
}

// The schedules that take any stage map take these.
TEST(RandomMaps, HaveProvenSchedules) {
  for (const char* name : {"gpipe", "gpipe_reversed", "forward_only"}) {
    for (std::uint64_t seed = 0; seed < kTables; ++seed) {
      const Table table = RandomTable(seed).make();
      const int micro_batches = 1 + static_cast<int>(seed % 20);
      const Pipe pipe = make_pipe(
          name,
          {.ranks = table.map.num_ranks(), .micro_batches = micro_batches, .stage_map = table.map});
      const Report report = verify(pipe, schedule_info(name).trains);
      ASSERT_TRUE(report.ok()) << name << " on " << to_text(table.map) << ", M " << micro_batches
                               << "\n"
                               << report.to_text();
    }
  }
}

}  // namespace
}  // namespace penstock::schedule
