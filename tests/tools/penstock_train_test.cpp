// penstock-train as a person runs it: a run, its resumption, weights out and in, and what it
// refuses.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "engine/run_folder.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "gpt2:layers=2,width=16,heads=2,context=16,vocabulary=256";

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class PenstockTrain : public ::testing::Test {
 protected:
  PenstockTrain() {
    std::ofstream(folder_ / "run.json") << R"({
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
      "pipeline": {"stages": 2}, "threads_per_rank": 1, "gradient_clipping": 1.0,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 200; ++i) text << "line " << i << " of the text to train on\n";
  }

  // Everything but the tool: files, model, and what the test wants.
  std::string arguments(const std::string& more, const std::string& model = kModel) const {
    return "--config " + (folder_ / "run.json").string() + " --data " +
           (folder_ / "text.txt").string() + " --model " + model + " " + more;
  }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  ToolResult train(const std::string& more, const std::string& model = kModel) const {
    return run_tool(PENSTOCK_TRAIN, arguments(more, model));
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(PenstockTrain, LeavesARunFolderThatAResumedRunGoesOnWith) {
  const ToolResult whole = train("--steps 6 --run " + in("whole"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const ToolResult first = train("--steps 3 --run " + in("parts"));
  ASSERT_EQ(first.status, 0) << first.err;
  const ToolResult rest = train("--steps 6 --resume --run " + in("parts"));
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(contains(rest.err, "resumed from global_step3 at step 3")) << rest.err;

  const std::vector<std::string> losses = lines_of(folder_ / "parts" / "losses.csv");
  ASSERT_EQ(losses.size(), 7u);
  EXPECT_EQ(losses[0], "step,samples,loss,lr,grad_norm,skipped");
  EXPECT_EQ(losses, lines_of(folder_ / "whole" / "losses.csv"));
  EXPECT_NE(losses[1].substr(2), losses[6].substr(2));
  for (const char* file : {"config.json", "startup.txt", "trace.json", "checkpoints/latest"}) {
    EXPECT_TRUE(fs::exists(folder_ / "parts" / file)) << file;
  }
  EXPECT_EQ(text_of(folder_ / "parts" / "checkpoints" / "latest"), "global_step6\n");
}

TEST_F(PenstockTrain, ReportsOnEveryRankAtTheEnd) {
  const ToolResult run = train("--steps 3 --ranks 4 --run " + in("run"));
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<std::string> lines = lines_of(folder_ / "run" / "ranks.txt");
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_TRUE(contains(lines[0], "rank  stages  replica  model  seconds"));
  for (int rank = 0; rank < 4; ++rank) {
    // Four micro batches of two samples, 16 tokens and a width of 16, three times.
    EXPECT_TRUE(contains(lines[static_cast<std::size_t>(rank) + 1], "12      24,576"))
        << lines[static_cast<std::size_t>(rank) + 1];
  }
  EXPECT_TRUE(contains(run.err, text_of(folder_ / "run" / "ranks.txt"))) << run.err;
}

TEST_F(PenstockTrain, WritesTheLinesOfTheWantedStagesAlone) {
  const std::string breakdowns =
      "--steps 2 --set steps_per_print=1 --set wall_clock_breakdown=true ";
  const ToolResult all = train(breakdowns + "--run " + in("all"));
  EXPECT_TRUE(contains(all.err, "step 2: loss ")) << all.err;
  EXPECT_TRUE(contains(all.err, "rank 1: time (ms)")) << all.err;
  const ToolResult second = train(breakdowns + "--log-stages 1 --run " + in("second"));
  EXPECT_FALSE(contains(second.err, "step 2: loss ")) << second.err;
  EXPECT_TRUE(contains(second.err, "rank 1: time (ms)")) << second.err;
  EXPECT_TRUE(contains(second.err, "checkpoint saved")) << "is of no stage: " << second.err;
  const ToolResult first = train(breakdowns + "--ranks 4 --log-replicas 0 --run " + in("first"));
  EXPECT_TRUE(contains(first.err, "time (ms)")) << first.err;
  const ToolResult none = train(breakdowns + "--ranks 4 --log-replicas 1 --run " + in("none"));
  EXPECT_FALSE(contains(none.err, "time (ms)")) << none.err;
}

TEST_F(PenstockTrain, ResumesOnAnotherPipeSize) {
  ASSERT_EQ(train("--steps 6 --run " + in("whole")).status, 0);
  ASSERT_EQ(train("--steps 3 --run " + in("parts")).status, 0);
  const ToolResult rest = train("--steps 6 --resume --set pipeline.stages=3 --run " + in("parts"));
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_TRUE(contains(rest.err, "grid: pipe 3 x data 1")) << rest.err;
  EXPECT_EQ(lines_of(folder_ / "parts" / "losses.csv"), lines_of(folder_ / "whole" / "losses.csv"));
}

TEST_F(PenstockTrain, DoesNotWriteOverAnEarlierRun) {
  ASSERT_EQ(train("--steps 1 --run " + in("run")).status, 0);
  const std::string losses = text_of(folder_ / "run" / "losses.csv");
  const ToolResult again = train("--steps 2 --run " + in("run"));
  EXPECT_EQ(again.status, 1);
  EXPECT_TRUE(contains(again.err, "holds an earlier run; go on with it by --resume")) << again.err;
  EXPECT_EQ(text_of(folder_ / "run" / "losses.csv"), losses);
}

TEST_F(PenstockTrain, KeepsASecondRunOutOfAFolderInUse) {
  std::optional<engine::RunFolder> live(std::in_place, folder_ / "run");
  for (const char* more : {"", "--resume "}) {
    const ToolResult second = train(std::string(more) + "--steps 1 --run " + in("run"));
    EXPECT_EQ(second.status, 1);
    EXPECT_TRUE(contains(second.err,
                         in("run") + " is in use by process " + std::to_string(getpid()) + " on "))
        << second.err;
  }
  live.reset();
  const ToolResult alone = train("--steps 1 --run " + in("run"));
  EXPECT_EQ(alone.status, 0) << alone.err;
}

TEST_F(PenstockTrain, SaysWhatARunChangesThatItGoesOnFrom) {
  ASSERT_EQ(train("--steps 1 --run " + in("run")).status, 0);
  const ToolResult same = train("--steps 2 --resume --run " + in("run"));
  ASSERT_EQ(same.status, 0) << same.err;
  EXPECT_FALSE(contains(same.err, "was saved:")) << same.err;

  std::ofstream(folder_ / "text.txt") << std::string(500, 'x');
  const ToolResult other =
      train("--steps 3 --resume --run " + in("run") +
            " --set optimizer.params.lr=0.02 --set seed=7 --set gradient_accumulation_steps=2");
  ASSERT_EQ(other.status, 0) << other.err;
  for (const char* change :
       {"optimizer.params.lr was 0.01, is 0.02", "train_batch_size was 8, is 4",
        "seed was 1234, with which dropout goes on, but the configuration says 7",
        "text.txt (500 bytes"}) {
    EXPECT_TRUE(contains(other.err, change)) << change << "\n" << other.err;
  }
}

TEST_F(PenstockTrain, RefusesToResumeAnotherModelOfTheSameShapes) {
  ASSERT_EQ(train("--steps 1 --run " + in("run")).status, 0);
  const ToolResult other = train("--steps 2 --resume --run " + in("run"),
                                 "gpt2:layers=2,width=16,heads=4,context=16,vocabulary=256");
  EXPECT_EQ(other.status, 1);
  EXPECT_TRUE(contains(other.err, "checkpoint global_step1 is of another model")) << other.err;
  EXPECT_TRUE(contains(other.err, R"("n_head": 2)")) << other.err;
  EXPECT_TRUE(contains(other.err, R"("n_head": 4)")) << other.err;
  // Dropout may change on the way.
  const ToolResult dropout =
      train("--steps 2 --resume --run " + in("run"), std::string(kModel) + ",dropout=0.1");
  EXPECT_EQ(dropout.status, 0) << dropout.err;
}

TEST_F(PenstockTrain, ExportsWeightsThatAnotherRunStartsFrom) {
  ASSERT_EQ(train("--steps 3 --run " + in("a") + " --export " + in("exported")).status, 0);
  // A step that changes nothing: what goes in comes out again, from another cut of the model.
  const ToolResult still =
      train("--steps 1 --run " + in("b") + " --export " + in("again") +
                " --set optimizer.params.lr=0 --set pipeline.stages=3 --set tensor_parallel.size=2",
            in("exported"));
  ASSERT_EQ(still.status, 0) << still.err;
  EXPECT_TRUE(contains(still.err, "weights from " + in("exported/model.safetensors"))) << still.err;
  const std::string weights = text_of(folder_ / "exported" / "model.safetensors");
  EXPECT_TRUE(contains(weights, "h.0.attn.c_attn.weight"));  // Hugging Face's names
  EXPECT_EQ(text_of(folder_ / "again" / "model.safetensors"), weights);
  EXPECT_EQ(text_of(folder_ / "again" / "config.json"),
            text_of(folder_ / "exported" / "config.json"));
  // A model that starts from its seed is another.
  ASSERT_EQ(train("--steps 1 --run " + in("c") + " --export " + in("fresh")).status, 0);
  EXPECT_NE(text_of(folder_ / "fresh" / "model.safetensors"), weights);
}

// Cuts a file of weights into two with an index, by means of its own header alone.
void cut_in_two(const fs::path& from, const fs::path& to) {
  const std::string bytes = text_of(from / "model.safetensors");
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const auto header = nlohmann::json::parse(bytes.substr(8, size));
  nlohmann::json map;
  nlohmann::json parts[2];
  std::string data[2];
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t part = name.find("layers.0") != std::string::npos ? 0 : 1;
    const std::size_t begin = entry.at("data_offsets").at(0);
    const std::size_t end = entry.at("data_offsets").at(1);
    nlohmann::json moved = entry;
    moved["data_offsets"] = {data[part].size(), data[part].size() + end - begin};
    data[part] += bytes.substr(8 + size + begin, end - begin);
    parts[part][name] = moved;
    map[name] = "model-0000" + std::to_string(part + 1) + "-of-00002.safetensors";
  }
  fs::create_directories(to);
  fs::copy_file(from / "config.json", to / "config.json");
  std::ofstream(to / "model.safetensors.index.json") << nlohmann::json{{"weight_map", map}};
  for (std::size_t part = 0; part < 2; ++part) {
    const std::string text = parts[part].dump();
    const std::uint64_t length = text.size();
    std::ofstream out(to / ("model-0000" + std::to_string(part + 1) + "-of-00002.safetensors"),
                      std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << text << data[part];
  }
}

TEST_F(PenstockTrain, TrainsALlamaAndReadsItsWeightsFromOneFileOrSeveral) {
  constexpr const char* kLlama =
      "llama:layers=2,width=16,heads=4,kv_heads=2,inner=24,context=16,vocabulary=256,tied=false";
  const ToolResult made =
      train("--steps 3 --run " + in("a") + " --export " + in("exported"), kLlama);
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string weights = text_of(folder_ / "exported" / "model.safetensors");
  EXPECT_TRUE(contains(weights, "model.layers.1.self_attn.k_proj.weight"));
  cut_in_two(folder_ / "exported", folder_ / "cut");
  for (const std::string from : {"exported", "cut"}) {
    const ToolResult still =
        train("--steps 1 --run " + in("from_" + from) + " --export " + in("again_" + from) +
                  " --set optimizer.params.lr=0 --set pipeline.stages=4",
              in(from));
    ASSERT_EQ(still.status, 0) << still.err;
    EXPECT_TRUE(contains(still.err, "weights from " + in(from))) << still.err;
    EXPECT_EQ(text_of(folder_ / ("again_" + from) / "model.safetensors"), weights);
    EXPECT_EQ(text_of(folder_ / ("again_" + from) / "config.json"),
              text_of(folder_ / "exported" / "config.json"));
  }
}

// The cells of a line, numbers without their commas.
std::vector<std::string> cells_of(std::string line) {
  std::erase(line, ',');
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST_F(PenstockTrain, PlansTheMemoryOfAnyGridWithoutTraining) {
  const ToolResult planned = train("--plan --ranks 8 --set pipeline.stages=4 --run " + in("run"));
  ASSERT_EQ(planned.status, 0) << planned.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  std::istringstream out(planned.out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  ASSERT_GE(lines.size(), 7U) << planned.out;
  EXPECT_EQ(lines[0], "grid: pipe 4 x data 2 x model 1; 1f1b, 4 micro batches of 2 samples");
  std::int64_t weights = 0;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const std::vector<std::string> cells = cells_of(lines[3 + rank]);
    ASSERT_EQ(cells.size(), 11U) << planned.out;
    EXPECT_EQ(cells[0], std::to_string(rank));
    std::int64_t total = 0;
    for (std::size_t i = 1; i + 1 < cells.size(); ++i) total += std::stoll(cells[i]);
    EXPECT_EQ(std::stoll(cells.back()), total) << lines[3 + rank];
    weights += std::stoll(cells[1]);
  }
  // Two blocks of 12 C² + 13 C, tables of 256 and 16 rows, one of them on two ranks, the last norm.
  constexpr std::int64_t kWidth = 16;
  constexpr std::int64_t kParameters =
      2 * (12 * kWidth * kWidth + 13 * kWidth) + (2 * 256 + 16) * kWidth + 2 * kWidth;
  EXPECT_GE(weights, kParameters * 4);
  EXPECT_LE(weights, kParameters * 4 + 30 * 256);  // tensors begin at multiples of 256 bytes
}

TEST_F(PenstockTrain, TakesOptionsWrittenOutAlone) {
  const ToolResult ended = train("--step 6 --run " + in("run"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_TRUE(contains(ended.err, "'--step'")) << ended.err;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

#ifdef PENSTOCK_MPIRUN
testing::Ended launch(int ranks, const std::string& arguments) {
  return testing::run_processes(PENSTOCK_MPIRUN, ranks, PENSTOCK_TRAIN " " + arguments, 60);
}

TEST_F(PenstockTrain, RefusesProcessesThatWouldEachTrainTheSameRun) {
  const testing::Ended ended =
      launch(2, arguments("--steps 1 --set communication.backend=local --run " + in("run")));
  EXPECT_EQ(ended.status, 2) << ended.output;
  EXPECT_TRUE(contains(ended.output,
                       "communication.backend is \"local\", but the launcher started 2 processes"))
      << ended.output;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(PenstockTrain, TrainsTheSameUnderALauncherAsInOneProcess) {
  const std::string more = "--steps 3 --set pipeline.stages=4 ";
  ASSERT_EQ(train(more + "--ranks 8 --run " + in("threads")).status, 0);
  const testing::Ended ended = launch(8, arguments(more + "--run " + in("processes")));
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(contains(ended.output, "grid: pipe 4 x data 2 x model 1 (mpi, 1 thread per rank)"))
      << ended.output;
  EXPECT_EQ(lines_of(folder_ / "processes" / "losses.csv"),
            lines_of(folder_ / "threads" / "losses.csv"));
}
#endif

}  // namespace
}  // namespace penstock::tools
