// What penstock-ckpt says of checkpoints, good and bad, and how it ends.
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::TemporaryFolder;

ToolResult run(const std::string& arguments) {
  return run_tool(PENSTOCK_CKPT, arguments);
}

const std::string kConfig = R"({"optimizer":{"params":{"lr":0.01}}})";

json engine_json(int step) {
  return {{"global_steps", step},
          {"global_samples", 8 * step},
          {"config", kConfig},
          {"layers", {"Embedding", "Block", "Block", "Head"}},
          {"client_state", "epoch 3"}};
}

// Two ranks: 0.weight [2, 3] is cut in rows; 1.bias [2] and 1.ids [2] are whole.
void save(const fs::path& directory, const std::string& tag, const json& engine,
          const std::vector<float>& weight, const std::vector<float>& bias = {1, 2},
          const std::vector<std::int64_t>& ids = {7, 8}) {
  comm::run_local(2, {}, [&](comm::World& world) {
    const tensor::Context context = testing::cpu_context();
    const tensor::Shape shape{2, 3};
    const auto row = static_cast<std::ptrdiff_t>(3 * world.rank());
    checkpoint::SaveRequest request{directory, tag, {}, engine.dump()};
    request.files.push_back(
        {checkpoint::model_states_file(0, world.rank()),
         {{"0.weight", shape, checkpoint::Region::shard(shape, 0, world.rank(), 2),
           testing::make<float>(context, {3}, {weight.begin() + row, weight.begin() + row + 3})}}});
    if (world.rank() == 1) {
      request.files.push_back(
          {checkpoint::model_states_file(1, 0),
           {checkpoint::Piece::whole("1.bias",
                                     testing::make<float>(context, {std::ssize(bias)}, bias)),
            checkpoint::Piece::whole("1.ids", testing::make<std::int64_t>(context, {2}, ids))}});
    }
    checkpoint::save(world, request);
    world.close();
  });
}

void change_last_byte(const fs::path& file) {
  std::fstream io(file, std::ios::in | std::ios::out | std::ios::binary);
  io.seekg(-1, std::ios::end);
  const char last = static_cast<char>(io.get());
  io.seekp(-1, std::ios::end);
  io.put(static_cast<char>(last ^ 1));
}

class PenstockCkpt : public ::testing::Test {
 protected:
  PenstockCkpt() {
    save(folder_.path(), "early", engine_json(5), {1, 2, 3, 4, 5, 6});
    save(folder_.path(), "late", engine_json(10), {1, 2, 3, 4, 5, 6.5});
  }
  std::string dir() const { return folder_.path().string(); }

  TemporaryFolder folder_;
};

void expect_says(const ToolResult& result, int status, const std::vector<std::string>& texts) {
  EXPECT_EQ(result.status, status) << result.out << result.err;
  for (const std::string& text : texts) {
    EXPECT_NE((result.out + result.err).find(text), std::string::npos)
        << result.out << result.err << "\nlacks: " << text;
  }
}

// --- list

TEST_F(PenstockCkpt, ListsTagsOldestFirst) {
  const ToolResult result = run("list " + dir());
  expect_says(result, 0, {"tag    step  samples  size", "early  5     40", "late   10    80"});
  EXPECT_EQ(result.err, "");
  const std::string late = result.out.substr(result.out.find("late "));
  EXPECT_NE(late.find("latest"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.substr(0, result.out.find("late ")).find("latest"), std::string::npos);
  const json out = json::parse(run("list --json " + dir()).out);
  EXPECT_EQ(out["latest"], "late");
  ASSERT_EQ(out["tags"].size(), 2u);
  EXPECT_EQ(out["tags"][0]["tag"], "early");
  EXPECT_EQ(out["tags"][0]["step"], 5);
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder_ / "early")) bytes += file.file_size();
  EXPECT_EQ(out["tags"][0]["bytes"], bytes - fs::file_size(folder_ / "early/manifest.json"));
}

TEST_F(PenstockCkpt, ListsWhatIsNotComplete) {
  fs::create_directory(folder_ / "later.tmp");
  fs::create_directory(folder_ / "notes");
  fs::rename(folder_ / "early", folder_ / "early.old");
  expect_says(run("list " + dir()), 0,
              {"early.old  5     40", "was being replaced", "later.tmp  -", "unfinished"});
  EXPECT_EQ(run("list " + dir()).out.find("notes"), std::string::npos);
  fs::remove(folder_ / "late/manifest.json");
  expect_says(
      run("list " + dir()), 1,
      {"late       -", "late is damaged:\n  [", "late] is incomplete: missing manifest.json",
       "nothing loads without a tag: `latest` names late, which is damaged"});
  const json out = json::parse(run("list --json " + dir()).out);
  EXPECT_EQ(out["tags"].size(), 3u);
  EXPECT_TRUE(out.contains("latest_fault"));
}

TEST_F(PenstockCkpt, ListsWhichFilesAreMissingOrOfAnotherSize) {
  const fs::path gone = folder_ / "early/layer_01-model_00-model_states.safetensors";
  const fs::path longer = folder_ / "early/layer_00-model_00-model_states.safetensors";
  const std::uintmax_t size = fs::file_size(longer);
  fs::remove(gone);
  std::ofstream(longer, std::ios::app) << 'x';
  const std::string sizes = std::to_string(size + 1) + " bytes; expected " + std::to_string(size);
  expect_says(run("list " + dir()), 1,
              {"early  5     40",
               "early is damaged:\n  [" + longer.string() + "] has " + sizes + "\n  [" +
                   gone.string() + "] is missing\n",
               "late   10    80"});
  const json out = json::parse(run("list --json " + dir()).out);
  EXPECT_EQ(out["tags"][0]["state"], "damaged");
  EXPECT_EQ(out["tags"][0]["faults"].size(), 2u);
  EXPECT_FALSE(out.contains("latest_fault"));
}

TEST_F(PenstockCkpt, TakesARunFolder) {
  const testing::TemporaryFolder run_folder;
  fs::create_directory_symlink(fs::absolute(folder_.path()), run_folder / "checkpoints");
  const std::string folder = run_folder.path().string();
  for (const char* command : {"list ", "show ", "verify "}) {
    expect_says(run(command + folder), 0, {"late"});
  }
  expect_says(run("diff " + dir() + " " + folder), 0, {"no difference in 3 tensors"});
}

// --- show

TEST_F(PenstockCkpt, ShowsCountersAndTensors) {
  expect_says(run("show " + dir()), 0,
              {"late: 3 tensors in 4 files", "global_steps    10",
               "layers          4: Embedding, 2 Block, Head", "client_state    epoch 3",
               "0.weight  f32    [2, 3]  layer_00-model_00-model_states.safetensors (axis 0 "
               "[0, 1)), layer_00-model_01-model_states.safetensors (axis 0 [1, 2))",
               "1.ids     i64    [2]     layer_01-model_00-model_states.safetensors"});
  expect_says(run("show " + dir() + " early"), 0, {"global_steps    5"});
  const json out = json::parse(run("show --json " + dir() + " early").out);
  EXPECT_EQ(out["engine"], engine_json(5));
  EXPECT_EQ(out["tensors"][0]["name"], "0.weight");
  EXPECT_EQ(out["tensors"][0]["shape"], (std::vector{2, 3}));
  EXPECT_EQ(out["tensors"][0]["pieces"].size(), 2u);
}

// --- verify

TEST_F(PenstockCkpt, VerifiesEveryByte) {
  expect_says(run("verify " + dir()), 0, {"late: 4 files, 3 tensors, ", "all as it was saved"});
  expect_says(run("verify --all " + dir()), 0, {"early: 4 files", "late: 4 files"});
  change_last_byte(folder_ / "early/layer_00-model_01-model_states.safetensors");
  fs::remove(folder_ / "early/layer_01-model_00-model_states.safetensors");
  expect_says(run("verify " + dir()), 0, {"late"});
  const std::vector<std::string> faults = {
      "early: 4 files, 3 tensors", ": damaged",
      "layer_00-model_01-model_states.safetensors] its checksum is",
      "the data of \"0.weight#0[1:2]\" were changed",
      "layer_01-model_00-model_states.safetensors] is missing; it holds tensors \"1.bias\", "
      "\"1.ids\""};
  expect_says(run("verify " + dir() + " early"), 1, faults);
  expect_says(run("verify --all " + dir()), 1, faults);
  const json out = json::parse(run("verify --json " + dir() + " early").out);
  EXPECT_EQ(out[0]["faults"].size(), 2u);
}

TEST_F(PenstockCkpt, VerifyTellsWhatKeepsACheckpointFromLoading) {
  change_last_byte(folder_ / "late/engine.json");
  expect_says(run("verify " + dir()), 1, {"latest: damaged", "engine.json] was changed"});
  change_last_byte(folder_ / "late/manifest.json");
  expect_says(run("verify " + dir() + " late"), 1, {"late: damaged", "manifest.json] "});
  std::ofstream(folder_ / "latest") << "gone";
  expect_says(run("verify " + dir()), 1, {"gone] does not exist", "complete tags here: "});
  expect_says(run("verify " + dir() + " gone"), 1, {"gone] does not exist"});
}

// --- diff

TEST_F(PenstockCkpt, DiffTellsWhichElementsDiffer) {
  const ToolResult result = run("diff " + dir() + "/early " + dir());
  // 6 became 6.5: a difference of 0.5, and 0.5 / 6.5 of the largest element.
  expect_says(result, 1,
              {"global_samples  40  80", "global_steps    5   10",
               "0.weight  f32 [2, 3]  1         0.5                 0.0769"});
  EXPECT_EQ(result.out.find("1.bias"), std::string::npos) << result.out;
  const json out = json::parse(run("diff --json " + dir() + "/early " + dir() + "/late/").out);
  EXPECT_EQ(out["engine"]["global_steps"], (std::vector<std::string>{"5", "10"}));
  ASSERT_EQ(out["tensors"].size(), 1u);
  EXPECT_EQ(out["tensors"][0]["elements"], 1);
  EXPECT_EQ(out["tensors"][0]["max_abs"], 0.5);
  EXPECT_EQ(out["tensors"][0]["max_rel"], 0.5 / 6.5);
  expect_says(run("diff --tensors --tolerance 0.1 " + dir() + "/early " + dir()), 0,
              {"no difference in 3 tensors"});
  expect_says(run("diff " + dir() + "/late " + dir()), 0, {"no difference in 3 tensors"});
}

TEST_F(PenstockCkpt, DiffTellsWhatOnlyOneHasAndWhatIsNoNumber) {
  json engine = engine_json(5);
  engine["config"] = R"({"optimizer":{"params":{"lr":0.02}}})";
  engine["extra"] = true;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  save(folder_.path(), "nan", engine, {1, 2, nan, 4, 5, 6}, {1, 2, 3}, {7, 9});
  expect_says(run("diff " + dir() + "/early " + dir() + "/nan"), 1,
              {"config.optimizer.params.lr  0.01     0.02",
               "extra                       nothing  "
               "true",
               "0.weight  f32 [2, 3]  ", "inf", "1.bias    f32 [2] in A, f32 [3] in B", "1.ids "});
  comm::run_local(1, {}, [&](comm::World& world) {
    const tensor::Context context = testing::cpu_context();
    checkpoint::save(
        world, {folder_ / "other",
                "t",
                {{checkpoint::model_states_file(0, 0),
                  {checkpoint::Piece::whole("2.weight", testing::make<float>(context, {1}, {1}))}}},
                engine_json(5).dump()});
    world.close();
  });
  expect_says(run("diff " + dir() + "/early " + dir() + "/other"), 1,
              {"0.weight  only in A: f32 [2, 3]", "2.weight  only in B: f32 [1]"});
}

// --- how it is used

TEST(PenstockCkptUsage, HelpSaysHow) {
  const ToolResult help = run("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"list", "show", "verify", "diff"}) {
    EXPECT_NE(help.out.find("\n  " + std::string(command) + " "), std::string::npos) << help.out;
    const ToolResult own = run(std::string(command) + " --help");
    EXPECT_EQ(own.status, 0);
    EXPECT_NE(own.out.find("Usage: penstock-ckpt " + std::string(command)), std::string::npos);
    EXPECT_NE(own.out.find("--json"), std::string::npos);
  }
}

TEST(PenstockCkptUsage, WrongUseEndsWithTwo) {
  for (const auto& [arguments, text] : std::vector<std::pair<std::string, std::string>>{
           {"", "a command is missing; expected list"},
           {"look .", "there is no command \"look\""},
           {"list", "DIR is missing; expected penstock-ckpt list DIR"},
           {"diff .", "B is missing"},
           {"show . t more", "too many words"},
           {"list --jason .", "--jason"},
           {"list /no/such/place", "/no/such/place] cannot list"},
           {"show /no/such/place", "/no/such/place] is not a directory"},
           {"verify /no/such/place", "/no/such/place is not a directory"},
           {"diff /no/such/place .", "/no/such/place"}}) {
    const ToolResult result = run(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_NE(result.err.find(text), std::string::npos) << arguments << ": " << result.err;
  }
}

}  // namespace
}  // namespace penstock::tools
