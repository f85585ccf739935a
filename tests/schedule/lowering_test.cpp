// Lowering against streams written by hand, and what it refuses.
#include "schedule/lowering.h"

#include <set>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>

#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

// Rows as text: actions separated by spaces.
RowSource rows(StageMap map, int micro_batches, std::vector<std::string> texts,
               bool trains = true) {
  return {std::move(map), micro_batches, trains, [texts = std::move(texts)](PipeRank rank) {
            std::istringstream in(texts[static_cast<std::size_t>(rank.value)]);
            Row row;
            for (std::string word; in >> word;) {
              row.push_back(parse_cell(word == "." ? "" : word));
            }
            return row;
          }};
}

// One step as text.
std::string text_of(const Schedule& schedule, std::int64_t step) {
  const std::vector<Step> one = {emitted(schedule, step)};
  return to_text(one);
}

RowSource one_f_one_b() {
  return rows(StageMap::loop(2, 1), 3, {"0F0 0F1 . 0B0 0F2 0B1 0B2", ". 1F0 1B0 1F1 1B1 1F2 1B2"});
}

TEST(Lowering, OneForwardOneBackward) {
  const auto pipe = lower_all("1f1b", one_f_one_b());
  EXPECT_EQ(to_text(*pipe[0]),
            "0: LoadMicroBatch(c0 m0 b0) | ForwardPass(c0 m0 b0) | SendActivation(c0 m0 b0)\n"
            "1: LoadMicroBatch(c0 m1 b1) | ForwardPass(c0 m1 b1) | SendActivation(c0 m1 b1)\n"
            "2: RecvGrad(c0 m0 b0) | BackwardPass(c0 m0 b0)\n"
            "3: LoadMicroBatch(c0 m2 b0) | ForwardPass(c0 m2 b0) | SendActivation(c0 m2 b0)\n"
            "4: RecvGrad(c0 m1 b1) | BackwardPass(c0 m1 b1)\n"
            "5: RecvGrad(c0 m2 b0) | BackwardPass(c0 m2 b0) | ReduceGrads(c0)\n"
            "6: ReduceTiedGrads() | OptimizerStep()\n");
  // Rank 0 receives the gradient of micro batch 0 right after it has sent micro batch 1, so that
  // the one buffer may be written then.
  EXPECT_EQ(to_text(*pipe[1]),
            "0: RecvActivation(c0 m0 b0) | LoadMicroBatch(c0 m0 b0) | ForwardPass(c0 m0 b0)\n"
            "1: BackwardPass(c0 m0 b0) | SendGrad(c0 m0 b0)\n"
            "2: RecvActivation(c0 m1 b0) | LoadMicroBatch(c0 m1 b0) | ForwardPass(c0 m1 b0)\n"
            "3: BackwardPass(c0 m1 b0) | SendGrad(c0 m1 b0)\n"
            "4: RecvActivation(c0 m2 b0) | LoadMicroBatch(c0 m2 b0) | ForwardPass(c0 m2 b0)\n"
            "5: BackwardPass(c0 m2 b0) | SendGrad(c0 m2 b0) | ReduceGrads(c0)\n"
            "6: ReduceTiedGrads() | OptimizerStep()\n");
  EXPECT_TRUE(verify(pipe, true).ok()) << verify(pipe, true).to_text();
  EXPECT_EQ(simulate(pipe, uniform_costs(2, 1)).makespan, 12.0);
}

TEST(Lowering, NeighboursOnOneRankHandOverWithoutInstructions) {
  const auto pipe =
      lower_all("v", rows(StageMap::v(2, 2), 1, {"0F0 3F0 3I0 3W0 0B0", "1F0 2F0 2B0 1I0 1W0"}));
  EXPECT_EQ(to_text(*pipe[1]),
            "0: RecvActivation(c0 m0 b0) | ForwardPass(c0 m0 b0)\n"
            "1: ForwardPass(c1 m0 b0) | SendActivation(c1 m0 b0)\n"
            "2: RecvGrad(c1 m0 b0) | BackwardPass(c1 m0 b0) | ReduceGrads(c1)\n"
            "3: BackwardInput(c0 m0 b0) | SendGrad(c0 m0 b0)\n"
            "4: BackwardWeight(c0 m0 b0) | ReduceGrads(c0)\n"
            "5: ReduceTiedGrads() | OptimizerStep()\n");
  EXPECT_TRUE(verify(pipe, true).ok()) << verify(pipe, true).to_text();
}

TEST(Lowering, ReceivesInTheOrderOfTheSends) {
  // Rank 1 wants micro batch 1 first; it is sent second.
  const auto pipe =
      lower_all("swap", rows(StageMap::loop(2, 1), 2, {"0F0 0F1 0B0 0B1", "1F1 1F0 1B0 1B1"}));
  EXPECT_EQ(text_of(*pipe[1], 0),
            "0: RecvActivation(c0 m0 b0) | RecvActivation(c0 m1 b1) | LoadMicroBatch(c0 m1 b1) | "
            "ForwardPass(c0 m1 b1)\n");
  EXPECT_TRUE(verify(pipe, true).ok()) << verify(pipe, true).to_text();
}

TEST(Lowering, AnOverlappedCellIsOneStep) {
  const auto pipe = lower_all(
      "pair", rows(StageMap::loop(2, 1), 2, {"0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1"}));
  EXPECT_EQ(text_of(*pipe[1], 1),
            "0: RecvActivation(c0 m1 b1) | LoadMicroBatch(c0 m1 b1) | ForwardPass(c0 m1 b1) | "
            "BackwardPass(c0 m0 b0) | SendGrad(c0 m0 b0)\n");
  Costs costs = uniform_costs(2, 1);
  EXPECT_EQ(simulate(pipe, costs).makespan, 1 + 1 + 1 + 2 + 2 + 2);
  costs.overlap = true;
  EXPECT_EQ(simulate(pipe, costs).makespan, 1 + 1 + 2 + 2 + 2);
}

TEST(Lowering, ABufferIsFreeOnceThePeerIsKnownToReceive) {
  // After micro batch 1's forward, rank 0 still computes micro batch 2's before it takes the
  // gradient of micro batch 0: rank 1 must not wait for that, so it uses a second buffer.
  const auto pipe = lower_all(
      "gap", rows(StageMap::loop(2, 1), 3, {"0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"}));
  EXPECT_EQ(pipe[1]->num_pipe_buffers(ChunkId{0}), 2);
  const Timeline timeline = simulate(pipe, uniform_costs(2, 1));
  EXPECT_EQ(timeline.ranks[1].peak_activations, 1);
  EXPECT_EQ(timeline.makespan, 1 + 3 * 3 + 2);
}

TEST(Lowering, ForwardOnlyWaitsAtItsLimit) {
  const RowSource source =
      rows(StageMap::loop(2, 1), 4, {"0F0 0F1 0F2 0F3", "1F0 1F1 1F2 1F3"}, false);
  const auto free = lower_all("forward", source);
  EXPECT_EQ(free[0]->num_pipe_buffers(ChunkId{0}), 3);  // rank 1 begins with micro batch 0
  EXPECT_EQ(free[1]->num_pipe_buffers(ChunkId{0}), 1);
  const auto limited = lower_all("forward", source, {.forward_buffers = 2});
  EXPECT_EQ(limited[0]->num_pipe_buffers(ChunkId{0}), 2);
  EXPECT_EQ(text_of(*limited[1], 3),
            "0: RecvActivation(c0 m3 b0) | LoadMicroBatch(c0 m3 b0) | ForwardPass(c0 m3 b0)\n");
  EXPECT_EQ(limited[0]->num_steps(), 4);
  EXPECT_TRUE(verify(limited, false).ok()) << verify(limited, false).to_text();
}

TEST(Lowering, IsMadeFromTheNeighboursRowsAlone) {
  std::set<int> asked;
  RowSource source{StageMap::loop(8, 1), 2, true, [&](PipeRank rank) {
                     asked.insert(rank.value);
                     const std::string s = std::to_string(rank.value);
                     return Row{parse_cell(s + "F0"), parse_cell(s + "F1"), parse_cell(s + "B0"),
                                parse_cell(s + "B1")};
                   }};
  lower("gpipe", source, PipeRank{3});
  EXPECT_EQ(asked, (std::set<int>{2, 3, 4}));
}

TEST(Lowering, RefusesRowsThatCannotRun) {
  const auto error = [](const std::string& first, const std::string& second) {
    return error_of([&] { lower_all("bad", rows(StageMap::loop(2, 1), 2, {first, second})); });
  };
  const std::string good = "1F0 1F1 1B0 1B1";
  EXPECT_EQ(error("0F0 0F1 0B0 0B1 0F1", good),
            "[lowering] rank 0, 0F1: it is there twice; expected once");
  EXPECT_EQ(error("0F0 0F1 0B0", good), "[lowering] rank 0, 0B1: the row does not have it");
  EXPECT_EQ(error("0F0 0F1 0B0 0I1", good), "[lowering] rank 0, 0W1: the row does not have it");
  EXPECT_EQ(error("0F0 0B1 0F1 0B0", good),
            "[lowering] rank 0, 0B1: its F does not stand before it");
  EXPECT_EQ(error("0F0 0F1 0W0 0I0 0B1", good),
            "[lowering] rank 0, 0W0: its I does not stand before");
  EXPECT_EQ(error("0F0 0F1 0B0 1B1", good),
            "[lowering] rank 0 has 1B1, but stage 1 is not its own; expected stages as in the map "
            "0,1");
  EXPECT_EQ(error("0F0 0F1 0B0 0B1 0F2", good),
            "[lowering] rank 0 has 0F2; expected micro batches 0 to 1");
  EXPECT_EQ(error("0F0 0F1 0B0 0B1", "1F0 1B0"),
            "[lowering] rank 0, 0B1: no neighbour's row has what it needs");
}

}  // namespace
}  // namespace penstock::schedule
