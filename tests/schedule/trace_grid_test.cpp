// A trace as text, and the phases of its passes.
#include "schedule/trace_grid.h"

#include <gtest/gtest.h>

#include "schedule/csv.h"
#include "tests/schedule/streams.h"
#include "tests/schedule/trace_support.h"

namespace penstock::schedule {
namespace {

// In cells: simulated with the costs that make pictures come out even.
Simulated in_cells(const RowSource& source) {
  const auto pipe = lower_all("cells", source);
  return simulated("cells", source, cell_costs(pipe));
}

TEST(TraceGrid, HasAColumnPerUnitOfTime) {
  const Simulated run = in_cells(one_f_one_b_rows({.ranks = 3, .micro_batches = 2}));
  EXPECT_EQ(to_grid(run.trace),
            "time    0  1  2  3  4  5  6  7  8\n"
            "rank 0  F0 F1 .  .  .  B0 .  B1 O\n"
            "rank 1  .  F0 F1 .  B0 .  B1 .  O\n"
            "rank 2  .  .  F0 B0 F1 B1 .  .  O\n");
}

TEST(TraceGrid, NamesChunksWhereThereAreSeveral) {
  const Simulated run = in_cells(gpipe_rows({.ranks = 1, .micro_batches = 1, .chunks = 2}));
  EXPECT_EQ(to_grid(run.trace),
            "time    0    1    2    3    4\n"
            "rank 0  F0c0 F0c1 B0c1 B0c0 O\n");
}

TEST(TraceGrid, AWholeBackwardBesideSplitOnesGoesOn) {
  Trace trace{"by hand", {{"rank 0", 0, {}}}};
  trace.ranks[0].spans = {{of(Opcode::kForwardPass, 0), StageId{0}, 0, 3.0, 4.0},
                          {of(Opcode::kBackwardPass, 0), StageId{0}, 1, 4.0, 6.0}};
  EXPECT_EQ(to_grid(trace),
            "time    0  1  2\n"
            "rank 0  F0 B0 =\n");
}

TEST(TraceGrid, ComesOutEvenWhereOnlyOneRankSplitsItsBackward) {
  const Simulated run = in_cells(source_of(parse_csv("0F0,0B0\n1F0,1I0,1W0\n")));
  EXPECT_EQ(to_grid(run.trace),
            "time    0  1  2  3  4 5\n"
            "rank 0  F0 .  .  B0 = O\n"
            "rank 1  .  F0 I0 W0 . O\n");
  EXPECT_EQ(error_of([] { cell_costs({}); }), "[pipe] there are no streams; expected one per rank");
}

TEST(TraceGrid, OverlappingPassesShareCells) {
  Trace trace{"by hand", {{"rank 0", 0, {}}}};
  trace.ranks[0].spans = {{of(Opcode::kForwardPass, 1), StageId{0}, 0, 0.0, 1.0},
                          {of(Opcode::kBackwardPass, 0), StageId{0}, 0, 0.0, 2.0}};
  EXPECT_EQ(to_grid(trace),
            "time    0     1\n"
            "rank 0  F1+B0 =\n");
}

TEST(TraceGrid, RefusesTimesBetweenCells) {
  EXPECT_NE(error_of([] { to_grid(two_ranks()); }).find("ForwardPass begins or ends at 3.5"),
            std::string::npos);
}

TEST(TraceGrid, AnEmptyTraceHasNoColumns) {
  EXPECT_EQ(to_grid(Trace{"none", {}}), "time\n");
}

TEST(Phases, OfOneForwardOneBackward) {
  const Simulated run = in_cells(one_f_one_b_rows({.ranks = 4, .micro_batches = 6}));
  for (int r = 0; r < 4; ++r) {
    const Phases phases = phases_of(run.trace.ranks[static_cast<std::size_t>(r)]);
    EXPECT_EQ(phases, (Phases{4 - r, 12 - 2 * (4 - r), 4 - r})) << r;
  }
}

TEST(Phases, OfAllForwardsThenAllBackwards) {
  const Simulated run = in_cells(gpipe_rows({.ranks = 2, .micro_batches = 5}));
  EXPECT_EQ(phases_of(run.trace.ranks[1]), (Phases{5, 0, 5}));
}

TEST(Phases, OfForwardsOnly) {
  const Simulated run = in_cells(forward_only_rows({.ranks = 2, .micro_batches = 5}));
  EXPECT_EQ(phases_of(run.trace.ranks[0]), (Phases{0, 5, 0}));
  EXPECT_EQ(phases_of(TraceRank{}), Phases{});
}

}  // namespace
}  // namespace penstock::schedule
