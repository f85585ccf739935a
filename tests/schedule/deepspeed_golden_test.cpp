// DeepSpeed's own streams, as its classes printed them, against ours.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedule/registry.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

struct GoldenRow {
  std::string schedule;
  ScheduleArgs args;
  int num_pipe_buffers;
  std::vector<std::vector<std::string>> steps;

  std::unique_ptr<Schedule> make() const { return make_schedule(schedule, args); }
  std::string title() const {
    return schedule + " stages " + std::to_string(args.ranks) + " micro batches " +
           std::to_string(args.micro_batches) + " stage " + std::to_string(args.rank.value);
  }
};

std::vector<GoldenRow> golden_rows() {
  std::ifstream file(PENSTOCK_GOLDEN_DIR "/deepspeed_schedules.jsonl");
  std::vector<GoldenRow> rows;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    ScheduleArgs args;
    args.ranks = json.at("stages");
    args.micro_batches = json.at("micro_batches");
    args.rank = PipeRank{json.at("stage_id")};
    rows.push_back({json.at("schedule"), args, json.at("num_pipe_buffers"), json.at("steps")});
  }
  return rows;
}

// DeepSpeed's form of an instruction: "ForwardPass(1)" with the buffer, "ReduceGrads()" without.
std::string deepspeed_form(const Instruction& i) {
  const bool has_buffer = has(operands(i.opcode), Operands::kBuffer);
  return std::string(name(i.opcode)) + "(" + (has_buffer ? std::to_string(i.buffer.value) : "") +
         ")";
}

std::vector<std::string> deepspeed_form(const Step& step) {
  std::vector<std::string> out;
  for (const Instruction& instruction : step) out.push_back(deepspeed_form(instruction));
  return out;
}

TEST(DeepSpeedGolden, FileHoldsAllRowsOfThreeSchedules) {
  std::map<std::string, int> counts;
  for (const GoldenRow& row : golden_rows()) ++counts[row.schedule];
  EXPECT_EQ(counts,
            (std::map<std::string, int>{{"train", 60}, {"inference", 60}, {"data_parallel", 6}}));
}

TEST(DeepSpeedGolden, EveryRowIsEqualInOrder) {
  for (const GoldenRow& row : golden_rows()) {
    SCOPED_TRACE(row.title());
    const auto schedule = row.make();
    EXPECT_EQ(schedule->num_pipe_buffers(ChunkId{0}), row.num_pipe_buffers);
    ASSERT_EQ(schedule->num_steps(), static_cast<std::int64_t>(row.steps.size()));
    std::size_t index = 0;
    for (const Step& step : steps(*schedule)) {
      EXPECT_EQ(deepspeed_form(step), row.steps[index]) << "step " << index;
      ++index;
    }
    EXPECT_EQ(index, row.steps.size());
  }
}

TEST(DeepSpeedGolden, EveryRowIsEqualInRandomOrder) {
  std::mt19937 random(20240607);
  for (const GoldenRow& row : golden_rows()) {
    SCOPED_TRACE(row.title());
    const auto schedule = row.make();
    std::vector<std::size_t> order(row.steps.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::shuffle(order, random);
    for (const std::size_t step : order) {
      EXPECT_EQ(deepspeed_form(emitted(*schedule, static_cast<std::int64_t>(step))),
                row.steps[step])
          << "step " << step;
    }
  }
}

// DeepSpeed's instructions carry no micro batch. All that a stage does, it does in micro-batch
// order, so the n-th instruction of an opcode in DeepSpeed's stream is micro batch n's.
TEST(DeepSpeedGolden, EveryInstructionNamesItsMicroBatchAndThatOnesBuffer) {
  for (const GoldenRow& row : golden_rows()) {
    SCOPED_TRACE(row.title());
    std::map<Opcode, int> seen;
    for (const Instruction& i : flat(*row.make())) {
      if (!has(operands(i.opcode), Operands::kMicroBatch)) continue;
      const int expected = seen[i.opcode]++;
      EXPECT_EQ(i.micro_batch.value, expected) << to_text(i);
      EXPECT_EQ(i.buffer.value, expected % row.num_pipe_buffers) << to_text(i);
      EXPECT_EQ(i.chunk, ChunkId{0}) << to_text(i);
    }
    EXPECT_EQ(seen[Opcode::kForwardPass], row.args.micro_batches);
    for (const auto& [opcode, number] : seen) {
      EXPECT_EQ(number, row.args.micro_batches) << name(opcode);
    }
  }
}

}  // namespace
}  // namespace penstock::schedule
