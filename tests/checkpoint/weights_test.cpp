#include "checkpoint/weights.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tensor/half.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

namespace fs = std::filesystem;
using penstock::testing::MemoryFileSystem;
using tensor::DType;
using tensor::Tensor;

const fs::path kGolden = fs::path(PENSTOCK_GOLDEN_DIR) / "gpt2_tiny";

std::vector<NamedTensor> read_all(const Weights& weights) {
  const tensor::Context context = cpu_context();
  std::vector<NamedTensor> tensors;
  for (const auto& [name, info] : weights.tensors()) {
    tensors.emplace_back(name, Tensor::empty(context, info.shape, info.dtype));
    weights.read(name, tensors.back().data);
  }
  return tensors;
}

TEST(Weights, ReadsWhatTheReferenceLibraryWrote) {
  const Weights weights = Weights::open(kGolden);
  EXPECT_EQ(weights.tensors().size(), 52u);
  EXPECT_EQ(weights.metadata().at("format"), "pt");
  EXPECT_EQ(weights.info("wte.weight").shape, (tensor::Shape{61, 48}));
  const Tensor bias = Tensor::empty(cpu_context(), {144}, DType::kF32);
  weights.read("h.0.attn.c_attn.bias", bias);
  // The first four, as Python's struct module unpacks them from the file.
  const std::vector<float> expected = {-0.06641324609518051f, 0.11075963824987411f,
                                       0.016036292538046837f, -0.015024854801595211f};
  EXPECT_EQ((std::vector<float>(bias.data<float>(), bias.data<float>() + 4)), expected);
}

TEST(Weights, WritesTheBytesThatTheReferenceLibraryWrote) {
  const TemporaryFolder folder;
  save_weights(folder / "model", read_all(Weights::open(kGolden)));
  EXPECT_EQ(get_bytes(posix_file_system(), folder / "model" / "model.safetensors"),
            get_bytes(posix_file_system(), kGolden / "model.safetensors"));
  EXPECT_EQ(posix_file_system().list(folder / "model"),
            std::vector<std::string>{"model.safetensors"});
}

TEST(Weights, NamesMayBeMappedAndIgnored) {
  const Weights weights = Weights::open(kGolden / "model.safetensors", [](std::string_view name) {
    using Name = std::optional<std::string>;
    return name.starts_with("h.") ? Name() : Name("model." + std::string(name));
  });
  EXPECT_EQ(weights.tensors().size(), 4u);
  EXPECT_TRUE(weights.contains("model.ln_f.bias"));
  EXPECT_FALSE(weights.contains("ln_f.bias"));
  const Tensor bias = Tensor::empty(cpu_context(), {48}, DType::kF32);
  EXPECT_NO_THROW(weights.read("model.ln_f.bias", bias));
  EXPECT_THROW(weights.read("ln_f.bias", bias), FileError);
  const std::string error = message<FileError>([] {
    Weights::open(kGolden, [](std::string_view) { return std::optional<std::string>("same"); });
  });
  EXPECT_NE(error.find("\"h.0.attn.c_attn.bias\" and \"h.0.attn.c_attn.weight\" both stand for "
                       "\"same\""),
            std::string::npos)
      << error;
}

TEST(Weights, ShapesMustBeEqualAndTypesUnlessACastIsAskedFor) {
  const tensor::Context context = cpu_context();
  const Weights weights = Weights::open(kGolden);
  EXPECT_THROW(weights.read("ln_f.bias", Tensor::empty(context, {1, 48}, DType::kF32)), FileError);
  const Tensor wide = Tensor::empty(context, {48}, DType::kF32);
  weights.read("h.1.ln_1.weight", wide);
  const Tensor narrow = Tensor::empty(context, {48}, DType::kBF16);
  EXPECT_THROW(weights.read("h.1.ln_1.weight", narrow), FileError);
  weights.read("h.1.ln_1.weight", narrow, Cast::kFloating);
  for (int i = 0; i < 48; ++i) {
    EXPECT_EQ(narrow.data<tensor::BF16>()[i], tensor::to_bf16(wide.data<float>()[i]));
  }
  EXPECT_THROW(
      weights.read("h.1.ln_1.weight", Tensor::empty(context, {48}, DType::kI32), Cast::kFloating),
      FileError);
}

TEST(Weights, FoldersWithoutOneFileAreRefusedWithTheReason) {
  const TemporaryFolder folder;
  EXPECT_NE(message<FileError>([&] { Weights::open(folder.path()); }).find("model.safetensors"),
            std::string::npos);
  EXPECT_NE(message<FileError>([&] { Weights::open(folder / "no"); }).find("does not exist"),
            std::string::npos);
}

// Two files and their index, for tests to damage.
struct Sharded {
  Sharded() {
    const tensor::Context context = cpu_context();
    save("model-00001-of-00002.safetensors",
         {{"a", make<float>(context, {2}, {1, 2})}, {"b", make<float>(context, {1}, {3})}});
    save("model-00002-of-00002.safetensors", {{"c", make<float>(context, {3}, {4, 5, 6})}});
    index({{"a", "1"}, {"b", "1"}, {"c", "2"}});
  }
  void save(const std::string& file, const std::vector<NamedTensor>& tensors) const {
    save_weights(folder / file, tensors);
  }
  void index(const std::vector<std::pair<std::string, std::string>>& map) const {
    std::string text;
    for (const auto& [tensor, number] : map) {
      text += (text.empty() ? "" : ",") + std::string("\"") + tensor + "\":\"model-0000" + number +
              "-of-00002.safetensors\"";
    }
    put_index("{\"metadata\":{\"total_size\":24},\"weight_map\":{" + text + "}}");
  }
  void put_index(const std::string& text) const {
    put_bytes(posix_file_system(), folder / "model.safetensors.index.json", text);
  }
  std::string refusal() const {
    return message<FileError>([&] { Weights::open(folder.path()); });
  }
  TemporaryFolder folder;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Weights, OfSeveralFilesAreReadByTheirIndex) {
  const Sharded sharded;
  const Weights weights = Weights::open(sharded.folder.path());
  EXPECT_EQ(weights.tensors().size(), 3u);
  const Tensor c = Tensor::empty(cpu_context(), {3}, DType::kF32);
  weights.read("c", c);
  EXPECT_EQ(c.data<float>()[2], 6);
  const Tensor b = Tensor::empty(cpu_context(), {1}, DType::kF32);
  weights.read("b", b);
  EXPECT_EQ(b.item(), 3);
}

TEST(Weights, AnIndexThatDiffersFromTheFilesIsRefused) {
  const Sharded sharded;
  sharded.index({{"a", "1"}, {"b", "1"}, {"c", "2"}, {"d", "2"}});
  EXPECT_TRUE(
      has(sharded.refusal(), "tensor \"d\" is missing from model-00002-of-00002.safetensors"))
      << sharded.refusal();
  sharded.index({{"a", "1"}, {"c", "2"}});
  EXPECT_TRUE(
      has(sharded.refusal(), "model-00001-of-00002.safetensors holds the unexpected tensor \"b\""))
      << sharded.refusal();
  sharded.index({{"a", "1"}, {"b", "2"}, {"c", "2"}});
  EXPECT_TRUE(
      has(sharded.refusal(), "tensor \"b\" is missing from model-00002-of-00002.safetensors"))
      << sharded.refusal();
  sharded.index({{"a", "1"}, {"b", "1"}, {"c", "3"}});
  EXPECT_TRUE(has(sharded.refusal(),
                  "tensor \"c\" is in model-00003-of-00002.safetensors, which is missing"))
      << sharded.refusal();
  for (const char* text : {"{", "{}", "[]", R"({"weight_map": {}})"}) {
    sharded.put_index(text);
    EXPECT_TRUE(has(sharded.refusal(), "model.safetensors.index.json] ")) << sharded.refusal();
  }
  for (const char* file : {"../x.safetensors", "", "a/b"}) {
    sharded.put_index(std::string(R"({"weight_map": {"a": ")") + file + "\"}}");
    EXPECT_TRUE(has(sharded.refusal(), "expected a plain name")) << sharded.refusal();
  }
}

TEST(Weights, AFailedSaveLeavesTheFileThatWasThere) {
  const NamedTensor tensors[] = {{"w", make<float>(cpu_context(), {2}, {3, 4})}};
  MemoryFileSystem trial;
  trial.make_directory("/m");
  trial.forget_operations();
  save_weights("/m", tensors, {}, trial);
  const std::size_t operations = trial.operations().size();
  ASSERT_GE(operations, 6u);
  for (std::size_t i = 0; i + 1 < operations; ++i) {  // the last only makes the name durable
    MemoryFileSystem files;
    files.make_directory("/m");
    put_bytes(files, "/m/model.safetensors", "old");
    files.forget_operations();
    files.fail_at(i);
    EXPECT_THROW(save_weights("/m", tensors, {}, files), FileError);
    EXPECT_EQ(files.list("/m"), std::vector<std::string>{"model.safetensors"});
    EXPECT_EQ(get_bytes(files, "/m/model.safetensors"), "old");
  }
}

}  // namespace
}  // namespace penstock::checkpoint::testing
