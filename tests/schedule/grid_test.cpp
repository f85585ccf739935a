#include "schedule/grid.h"

#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "schedule/text.h"

namespace penstock::schedule {
namespace {

// A schedule that is exactly the steps given.
class Fixed final : public Schedule {
 public:
  Fixed(const ScheduleArgs& args, std::string_view text)
      : Schedule("fixed", args), steps_(parse_text(text)) {}
  std::int64_t num_steps() const override { return static_cast<std::int64_t>(steps_.size()); }

 private:
  void do_emit(std::int64_t step, std::vector<Instruction>& out) const override {
    const Step& instructions = steps_[static_cast<std::size_t>(step)];
    out.insert(out.end(), instructions.begin(), instructions.end());
  }
  int do_num_pipe_buffers(ChunkId) const override { return 1; }

  std::vector<Step> steps_;
};

TEST(Grid, ShowsThePassesOfEachRank) {
  EXPECT_EQ(to_grid(make_pipe("train", {.ranks = 3, .micro_batches = 3})),
            "step    0  1  2  3  4  5  6  7  8  9\n"
            "rank 0  F0 .  F1 .  F2 B0 .  B1 .  B2+O\n"
            "rank 1  .  F0 .  F1 B0 F2 B1 .  B2 O\n"
            "rank 2  .  .  F0 B0 F1 B1 F2 B2 .  O\n");
}

TEST(Grid, AlignsColumnsOfDifferentWidth) {
  EXPECT_EQ(to_grid(make_pipe("inference", {.ranks = 2, .micro_batches = 11})),
            "step    0  1  2  3  4  5  6  7  8  9  10  11\n"
            "rank 0  F0 F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 .\n"
            "rank 1  .  F0 F1 F2 F3 F4 F5 F6 F7 F8 F9  F10\n");
}

TEST(Grid, NamesChunksAndSplitBackwardsAndAllPassesOfAStep) {
  std::vector<std::unique_ptr<Schedule>> pipe;
  pipe.push_back(std::make_unique<Fixed>(
      ScheduleArgs{.chunks = 2},
      "0: ForwardPass(c1 m7 b0) | BackwardPass(c0 m3 b0)\n1:\n2: BackwardInput(c0 m4 b0) | "
      "SendGrad(c0 m4 b0)\n3: BackwardWeight(c0 m4 b0)\n"));
  EXPECT_EQ(to_grid(pipe),
            "step    0         1 2    3\n"
            "rank 0  F7c1+B3c0 . I4c0 W4c0\n");
}

TEST(Grid, LetsRowsEndEarly) {
  std::vector<std::unique_ptr<Schedule>> pipe;
  pipe.push_back(std::make_unique<Fixed>(ScheduleArgs{.ranks = 2}, "0:\n"));
  pipe.push_back(std::make_unique<Fixed>(ScheduleArgs{.ranks = 2, .rank = PipeRank{1}},
                                         "0:\n1: ForwardPass(c0 m0 b0)\n"));
  EXPECT_EQ(to_grid(pipe), "step    0 1\nrank 0  .\nrank 1  . F0\n");
}

}  // namespace
}  // namespace penstock::schedule
