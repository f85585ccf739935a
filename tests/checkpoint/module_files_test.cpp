// Weights of several ranks in Hugging Face's files: what is written, and what a damaged set says.
#include "checkpoint/module_files.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/weights.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using nlohmann::json;
using penstock::testing::MemoryFileSystem;
using tensor::Tensor;

const std::string kFirst = "/out/m/model-00001-of-00002.safetensors";
const std::string kSecond = "/out/m/model-00002-of-00002.safetensors";
const std::string kIndex = "/out/m/model.safetensors.index.json";

// Tensor i of `count` has i + 1 elements of the value 10·version + i.
std::vector<float> values_at(int i, int version) {
  return std::vector<float>(static_cast<std::size_t>(i + 1), static_cast<float>(10 * version + i));
}

// Given by the ranks in turn.
void save_some(MemoryFileSystem& files, int ranks, int count, int version,
               std::vector<std::string>* errors = nullptr) {
  run_ranks(ranks, [&](comm::World& world) {
    std::vector<NamedTensor> mine;
    for (int i = world.rank(); i < count; i += world.size()) {
      mine.emplace_back(std::to_string(i) + ".w",
                        make<float>(cpu_context(), {i + 1}, values_at(i, version)));
    }
    const std::string error =
        message<FileError>([&] { save_module_files(world, "/out/m", mine, files); });
    if (errors != nullptr) {
      (*errors)[static_cast<std::size_t>(world.rank())] = error;
    } else {
      EXPECT_EQ(error, "nothing was thrown");
    }
  });
}

// -1 when it is none, or mixed.
int version_in(MemoryFileSystem& files, int count) {
  const Weights weights = Weights::open("/out/m", {}, files);
  EXPECT_EQ(weights.tensors().size(), static_cast<std::size_t>(count));
  for (int version = 0; version < 5; ++version) {
    int same = 0;
    for (int i = 0; i < count; ++i) {
      const Tensor value = Tensor::empty(cpu_context(), {i + 1}, tensor::DType::kF32);
      weights.read(std::to_string(i) + ".w", value);
      same += values<float>(value) == values_at(i, version) ? 1 : 0;
    }
    if (same == count) return version;
  }
  return -1;
}

std::string error_of_opening(MemoryFileSystem& files) {
  return message<FileError>([&] { Weights::open("/out/m", {}, files); });
}

void expect_error(MemoryFileSystem& files, const std::string& text) {
  const std::string error = error_of_opening(files);
  EXPECT_NE(error.find(text), std::string::npos) << error << "\nexpected: " << text;
}

TEST(ModuleFiles, OneRankWritesOneFile) {
  MemoryFileSystem files;
  save_some(files, 1, 4, 1);
  EXPECT_EQ(files.list("/out/m"), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(version_in(files, 4), 1);
}

TEST(ModuleFiles, EachRankThatHoldsSomeWritesAFile) {
  MemoryFileSystem files;
  save_some(files, 2, 5, 1);
  EXPECT_EQ(version_in(files, 5), 1);
  const json index = json::parse(get_bytes(files, kIndex));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * (1 + 2 + 3 + 4 + 5));
  EXPECT_EQ(index["weight_map"].size(), 5u);
  EXPECT_EQ(index["weight_map"]["3.w"], "model-00002-of-00002.safetensors");
  EXPECT_EQ(files.list("/out/m").size(), 3u);

  MemoryFileSystem few;  // four ranks, two of which hold nothing
  save_some(few, 4, 2, 1);
  EXPECT_EQ(few.list("/out/m").size(), 3u);
  EXPECT_EQ(version_in(few, 2), 1);

  MemoryFileSystem none;
  save_some(none, 2, 0, 1);
  EXPECT_EQ(version_in(none, 0), 0);
}

TEST(ModuleFiles, AreReplacedWholly) {
  MemoryFileSystem files;
  save_some(files, 3, 6, 1);
  save_some(files, 2, 4, 2);
  EXPECT_EQ(version_in(files, 4), 2);
  EXPECT_EQ(files.list("/out/m").size(), 3u) << "a stale file is left";
  save_some(files, 1, 4, 3);
  EXPECT_EQ(files.list("/out/m"), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(files.list("/out"), std::vector<std::string>{"m"});
}

TEST(ModuleFiles, OtherFilesAreNotReplaced) {
  MemoryFileSystem files;
  save_some(files, 2, 4, 1);
  put_bytes(files, "/out/m/config.json", "{}");
  std::vector<std::string> errors(2);
  save_some(files, 2, 4, 2, &errors);
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_NE(errors[0].find("[/out/m] holds config.json; expected a new folder"), std::string::npos)
      << errors[0];
  EXPECT_EQ(version_in(files, 4), 1);
  EXPECT_EQ(files.list("/out"), std::vector<std::string>{"m"});
}

TEST(ModuleFiles, ANameThatTwoRanksGiveIsRefused) {
  MemoryFileSystem files;
  run_ranks(2, [&](comm::World& world) {
    const NamedTensor same[] = {{"w", make<float>(cpu_context(), {1}, {1})}};
    const std::string error =
        message<FileError>([&] { save_module_files(world, "/out/m", same, files); });
    EXPECT_NE(error.find("tensor \"w\" is given twice"), std::string::npos) << error;
  });
  EXPECT_TRUE(files.list("/out").empty());
}

TEST(ModuleFiles, AnErrorAnywhereLeavesTheOldOrTheNew) {
  MemoryFileSystem trial;
  save_some(trial, 2, 4, 1);
  trial.forget_operations();
  save_some(trial, 2, 4, 2);
  const std::size_t operations = trial.operations().size();
  ASSERT_GT(operations, 10u);
  for (std::size_t i = 0; i < operations; ++i) {
    MemoryFileSystem files;
    save_some(files, 2, 4, 1);
    files.forget_operations();
    files.fail_at(i);
    std::vector<std::string> errors(2);
    save_some(files, 2, 4, 2, &errors);
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_NE(errors[0].find("No space left"), std::string::npos) << i << ": " << errors[0];
    const int version = version_in(files, 4);
    EXPECT_TRUE(version == 1 || version == 2) << i;
    save_some(files, 2, 4, 3);
    EXPECT_EQ(version_in(files, 4), 3);
  }
}

TEST(ModuleFiles, AKillAnywhereLeavesTheOldOrTheNew) {
  MemoryFileSystem trial;
  save_some(trial, 1, 4, 1);
  trial.forget_operations();
  save_some(trial, 1, 4, 2);
  std::vector<int> found;
  for (std::size_t i = 0; i < trial.operations().size(); ++i) {
    MemoryFileSystem files;
    save_some(files, 1, 4, 1);
    files.forget_operations();
    files.lose_power_at(i);
    EXPECT_THROW(save_some(files, 1, 4, 2), penstock::testing::PowerLost);
    const auto after = files.after_power_loss(penstock::testing::Survivors::kNone);
    found.push_back(version_in(*after, 4));
    EXPECT_TRUE(found.back() == 1 || found.back() == 2) << i;
    save_some(*after, 1, 4, 3);
    EXPECT_EQ(version_in(*after, 4), 3);
  }
  EXPECT_EQ(std::ranges::count(found, -1), 0);
  EXPECT_GT(std::ranges::count(found, 1), 0);
  EXPECT_GT(std::ranges::count(found, 2), 0);
}

// --- sets that do not fit together

class DamagedSet : public ::testing::Test {
 protected:
  DamagedSet() { save_some(files_, 2, 4, 1); }

  void change_index(const std::function<void(json&)>& change) {
    json index = json::parse(get_bytes(files_, kIndex));
    change(index);
    put_bytes(files_, kIndex, index.dump());
  }

  MemoryFileSystem files_;
};

TEST_F(DamagedSet, ThePremiseIsThatItLoads) {
  change_index([](json&) {});
  EXPECT_EQ(version_in(files_, 4), 1);
}

TEST_F(DamagedSet, ATensorOfTheIndexIsInNoFile) {
  change_index(
      [](json& index) { index["weight_map"]["9.w"] = "model-00001-of-00002.safetensors"; });
  expect_error(files_, "tensor \"9.w\" is missing from model-00001-of-00002.safetensors");
}

TEST_F(DamagedSet, AFileHoldsATensorThatIsNotInTheIndex) {
  change_index([](json& index) { index["weight_map"].erase("2.w"); });
  expect_error(files_, "model-00001-of-00002.safetensors holds the unexpected tensor \"2.w\"");
}

TEST_F(DamagedSet, TheFilesWereSwapped) {
  const std::string first = get_bytes(files_, kFirst), second = get_bytes(files_, kSecond);
  put_bytes(files_, kFirst, second);
  put_bytes(files_, kSecond, first);
  expect_error(files_, "tensor \"0.w\" is missing from model-00001-of-00002.safetensors");
}

TEST_F(DamagedSet, AFileIsMissingOrCut) {
  const std::string second = get_bytes(files_, kSecond);
  put_bytes(files_, kSecond, second.substr(0, second.size() - 3));
  expect_error(files_, kSecond);
  files_.remove_all(kSecond);
  expect_error(files_, "tensor \"1.w\" is in model-00002-of-00002.safetensors, which is missing");
}

TEST_F(DamagedSet, TheIndexIsNoIndex) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", "is not JSON"},
           {"[]", "has no \"weight_map\""},
           {R"({"weight_map": 3})", "has no \"weight_map\""},
           {R"({"weight_map": {}})", "lists no tensors"},
           {R"({"weight_map": {"w": 3}})", "tensor \"w\" is in 3; expected a plain name"},
           {R"({"weight_map": {"w": "../m.safetensors"}})", "expected a plain name"},
           {R"({"weight_map": {"w": "a.bin"}})", "expected a plain name"},
           {R"({"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}})",
            "\"w\" is given twice"},
           {"{\"weight_map\": {\"\xff\": \"a.safetensors\"}}", "is not JSON"}}) {
    put_bytes(files_, kIndex, text);
    expect_error(files_, expected);
    expect_error(files_, kIndex);
  }
}

}  // namespace
}  // namespace penstock::checkpoint::testing
