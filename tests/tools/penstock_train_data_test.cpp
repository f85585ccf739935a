// The kinds of data that penstock-train reads: tokens and images, from small files in their forms.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/model/binary_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::put_big;
using testing::put_little;
using testing::write_file;

class PenstockTrainData : public ::testing::Test {
 protected:
  PenstockTrainData() {
    std::ofstream(folder_ / "run.json") << R"({
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
      "pipeline": {"stages": 2}, "threads_per_rank": 1,
      "optimizer": {"type": "Adam", "params": {"lr": 0.001}}})";
  }

  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  ToolResult train(const std::string& model, const std::string& more) const {
    return run_tool(PENSTOCK_TRAIN,
                    "--config " + in("run.json") + " --model " + model + " " + more);
  }
  ToolResult train_gpt2(const std::string& more, int steps = 3) const {
    return train("gpt2:layers=1,width=16,heads=2,context=8,vocabulary=256",
                 "--steps " + std::to_string(steps) + " " + more);
  }
  ToolResult train_alexnet(const std::string& more) const { return train("alexnet", more); }
  // losses.csv of a run folder.
  std::string losses(const std::string& run) const {
    std::ifstream in(folder_ / run / "losses.csv");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void expect_refusal(const ToolResult& result, int status, const std::string& text) const {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  }

  Bytes cifar_records(int count) const {
    Bytes bytes;
    for (int i = 0; i < count * 3073; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(i % 3073 == 0 ? i / 3073 % 10 : i * 7 % 251));
    }
    return bytes;
  }
  void write_mnist() const {
    Bytes images, labels;
    for (const std::uint32_t number : {0x803u, 6u, 28u, 28u}) put_big(images, number, 4);
    for (int i = 0; i < 6 * 28 * 28; ++i) images.push_back(static_cast<std::uint8_t>(i * 3));
    for (const std::uint32_t number : {0x801u, 6u}) put_big(labels, number, 4);
    for (int i = 0; i < 6; ++i) labels.push_back(static_cast<std::uint8_t>(i));
    write_file(folder_ / "train-images-idx3-ubyte", images);
    write_file(folder_ / "train-labels-idx1-ubyte", labels);
  }

  const testing::TemporaryFolder folder_;
};

// The same tokens in each form give the same run.
TEST_F(PenstockTrainData, ReadsTextAndTokensAlike) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i) + '\n';
  std::ofstream(folder_ / "text.txt") << text;
  Bytes raw, header;
  for (const char c : text) put_little(raw, static_cast<std::uint8_t>(c), 2);
  for (const std::uint64_t number : {std::uint64_t{20240520}, std::uint64_t{1}, text.size()}) {
    put_little(header, number, 4);
  }
  header.resize(1024);
  header.insert(header.end(), raw.begin(), raw.end());
  write_file(folder_ / "nanogpt.bin", raw);
  write_file(folder_ / "llmc.bin", header);
  write_file(folder_ / "llmc.tokens", header);

  ASSERT_EQ(train_gpt2("--data " + in("text.txt") + " --run " + in("a")).status, 0);
  ASSERT_EQ(train_gpt2("--data " + in("nanogpt.bin") + " --run " + in("b")).status, 0);
  ASSERT_EQ(train_gpt2("--data " + in("llmc.bin") + " --run " + in("c")).status, 0);
  ASSERT_EQ(
      train_gpt2("--data-format llm.c --data " + in("llmc.tokens") + " --run " + in("d")).status,
      0);
  EXPECT_FALSE(losses("a").empty());
  for (const char* run : {"b", "c", "d"}) EXPECT_EQ(losses(run), losses("a")) << run;
  // The header taken for tokens is another run, and has tokens that the model does not know.
  expect_refusal(train_gpt2("--data-format nanogpt --data " + in("llmc.bin") + " --run " + in("e"),
                            /*steps=*/40),
                 1, "llmc.bin has 55432 at token 0; expected tokens in [0, 256)");
}

// Of the text, before anything is trained.
TEST_F(PenstockTrainData, RefusesBytesBeyondTheVocabulary) {
  std::ofstream(folder_ / "text.txt") << std::string(100, 'a') + "z";
  const auto model = [](int vocabulary) {
    return "gpt2:layers=1,width=16,heads=2,context=8,vocabulary=" + std::to_string(vocabulary);
  };
  const std::string more = "--steps 1 --data " + in("text.txt") + " --run " + in("run");
  expect_refusal(train(model('z'), more), 1,
                 "text.txt has the byte 122 at 100; expected bytes in [0, 122); give the model "
                 "vocabulary=256");
  EXPECT_EQ(train(model('z' + 1), more).status, 0);
}

// The keys and values of DeepSpeed's pipeline tutorial, which has no key of a pipeline.
TEST_F(PenstockTrainData, TrainsAlexNetByTheConfigurationOfATutorial) {
  std::ofstream(folder_ / "run.json") << R"({
    "train_batch_size": 256, "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8}},
    "steps_per_print": 10, "wall_clock_breakdown": false})";
  write_file(folder_ / "data_batch_1.bin", cifar_records(40));
  const std::string data = " --steps 1 --data " + in("data_batch_1.bin");
  const ToolResult one = train_alexnet("--run " + in("one") + data);
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_NE(one.err.find("train_batch_size 256 = micro batch 8 x accumulation 32 x replicas 1"),
            std::string::npos)
      << one.err;
  EXPECT_EQ(one.err.find("without effect"), std::string::npos) << one.err;
  const ToolResult two = train_alexnet("--set pipeline.stages=2 --run " + in("two") + data);
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(losses("one"), losses("two"));
}

TEST_F(PenstockTrainData, TrainsAlexNetOnCifarAndGoesOnWithIt) {
  write_file(folder_ / "data_batch_1.bin", cifar_records(7));
  write_file(folder_ / "data_batch_2.bin", cifar_records(4));
  const std::string data = " --data " + in("data_batch_1.bin") + " " + in("data_batch_2.bin");
  const ToolResult whole = train_alexnet("--steps 4 --run " + in("whole") + data + " --eval-data " +
                                         in("data_batch_2.bin"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_NE(whole.err.find("evaluation loss"), std::string::npos) << whole.err;
  ASSERT_EQ(train_alexnet("--steps 2 --run " + in("parts") + data).status, 0);
  const ToolResult rest =
      train_alexnet("--steps 4 --resume --run " + in("parts") + data + " --set pipeline.stages=4");
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(losses("parts"), losses("whole"));

  expect_refusal(train("alexnet:num_classes=11", "--steps 6 --resume --run " + in("parts") + data),
                 1,
                 R"("14.weight" is f32 [10, 256] in the checkpoint, the module has f32 [11, 256])");
  const ToolResult other = train_alexnet("--steps 5 --resume --run " + in("parts") + " --data " +
                                         in("data_batch_2.bin"));
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_NE(other.err.find("the data were " + in("data_batch_1.bin") + " " +
                           in("data_batch_2.bin") + " (33803 bytes, xxh3 "),
            std::string::npos)
      << other.err;
}

TEST_F(PenstockTrainData, TrainsAlexNetOnMnist) {
  write_mnist();
  const ToolResult result =
      train_alexnet("--steps 2 --run " + in("run") + " --data " + in("train-images-idx3-ubyte"));
  ASSERT_EQ(result.status, 0) << result.err;
  fs::rename(folder_ / "train-images-idx3-ubyte", folder_ / "images");
  expect_refusal(train_alexnet("--run " + in("b") + " --data-format mnist --data " + in("images")),
                 1, "expected a file of MNIST's images such as train-images-idx3-ubyte");
  write_file(folder_ / "t10k-images-idx3-ubyte.gz", {0x1f, 0x8b, 8, 0});
  expect_refusal(train_alexnet("--run " + in("b") + " --data " + in("t10k-images-idx3-ubyte.gz")),
                 1, "t10k-images-idx3-ubyte.gz is compressed; unpack it first");
}

TEST_F(PenstockTrainData, RefusesWhatTheModelDoesNotTake) {
  std::ofstream(folder_ / "text.txt") << "some text that is long enough";
  const std::string data = " --run " + in("run") + " --data " + in("text.txt");
  expect_refusal(train_gpt2("--data-format cifar10" + data), 1,
                 "--data-format is cifar10; expected auto, text, nanogpt or llm.c");
  expect_refusal(train_alexnet("--data-format text" + data), 1,
                 "--data-format is text; expected auto, cifar10 or mnist");
  expect_refusal(train_alexnet(data), 1, "text.txt has 29 bytes; expected a multiple of 3073");
  expect_refusal(train_gpt2("--data-format words" + data), 2,
                 "--data-format expects auto, text, nanogpt, llm.c, cifar10 or mnist, got "
                 "\"words\"");
  expect_refusal(
      train_gpt2("--run " + in("run") + " --data " + in("text.txt") + " " + in("text.txt")), 1,
      "expected one file of text, got 2");
  expect_refusal(train("mlp", data), 1, "takes neither tokens nor images");
  write_file(folder_ / "c.bin", cifar_records(4));
  expect_refusal(train_alexnet("--run " + in("run") + " --data " + in("c.bin") + " --export " +
                               in("exported")),
                 1, "--export writes Hugging Face's files");
  EXPECT_FALSE(fs::exists(folder_ / "exported"));
  EXPECT_FALSE(fs::exists(folder_ / "run" / "losses.csv"));
}

}  // namespace
}  // namespace penstock::tools
