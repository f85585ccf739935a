// Checkpoints that were changed after they were saved: each fault is found before a tensor is read,
// on every rank, and names file and tensor.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "comm/world.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;
using tensor::Tensor;

const std::string kDirectory = "/ckpt/t/";
const std::string kLayer1 = model_states_file(1, 0);
const std::string kLayer2 = model_states_file(2, 0);

class Faults : public ::testing::Test {
 protected:
  Faults() { save_version(files_, 2, "/ckpt", "t", 4); }

  std::string bytes(const std::string& file) { return get_bytes(files_, kDirectory + file); }
  void put(const std::string& file, const std::string& text) {
    put_bytes(files_, kDirectory + file, text);
  }
  // The file's tensors, to be written again with a change.
  std::vector<NamedTensor> tensors(const std::string& file) {
    const SafetensorsFile source = SafetensorsFile::open(kDirectory + file, files_);
    std::vector<NamedTensor> result;
    for (const StoredTensor& stored : source.tensors()) {
      result.emplace_back(stored.name, Tensor::empty(cpu_context(), stored.shape, stored.dtype));
      source.read(stored.name, result.back().data);
    }
    return result;
  }
  void rewrite(const std::string& file, const std::vector<NamedTensor>& changed) {
    write_safetensors(kDirectory + file, changed, {}, files_);
  }
  // The error, which every number of ranks must give.
  void expect_error(const std::vector<std::string>& texts) {
    for (const int ranks : {1, 3}) {
      const std::string error = load_error(files_, ranks, "/ckpt");
      for (const std::string& text : texts) {
        EXPECT_NE(error.find(text), std::string::npos) << error << "\nexpected: " << text;
      }
    }
  }

  MemoryFileSystem files_;
};

TEST_F(Faults, ThePremiseIsThatItLoads) {
  EXPECT_EQ(load_version(files_, 3, "/ckpt"), 4);
  rewrite(kLayer1, tensors(kLayer1));  // writing a file again unchanged changes nothing
  EXPECT_EQ(load_version(files_, 3, "/ckpt"), 4);
}

TEST_F(Faults, ATensorWasRemoved) {
  std::vector<NamedTensor> changed = tensors(kLayer1);
  std::erase_if(changed, [](const NamedTensor& t) { return t.name == "1.bias"; });
  rewrite(kLayer1, changed);
  expect_error({kLayer1, "tensor \"1.bias\" is missing"});
}

TEST_F(Faults, ATensorWasAdded) {
  std::vector<NamedTensor> changed = tensors(kLayer1);
  changed.emplace_back("1.extra", make<float>(cpu_context(), {1}, {1}));
  rewrite(kLayer1, changed);
  expect_error({kLayer1, "holds the unexpected tensor \"1.extra\""});
}

TEST_F(Faults, ATensorHasAnotherShapeOrType) {
  std::vector<NamedTensor> changed = tensors(kLayer1);
  const std::vector<NamedTensor> original = changed;
  changed[0].shape = {24};
  ASSERT_EQ(changed[0].name, "1.weight");
  rewrite(kLayer1, changed);
  expect_error({kLayer1, "tensor \"1.weight\" is f32 [24]; expected f32 [4, 6]"});
  changed = original;
  changed[0] = NamedTensor("1.weight", Tensor::zeros(cpu_context(), {4, 6}, tensor::DType::kI32));
  rewrite(kLayer1, changed);
  expect_error({kLayer1, "tensor \"1.weight\" is i32 [4, 6]; expected f32 [4, 6]"});
}

TEST_F(Faults, TwoLayersWereSwapped) {
  const std::string one = bytes(kLayer1);
  const std::string two = bytes(kLayer2);
  ASSERT_EQ(one.size(), two.size());
  put(kLayer1, two);
  put(kLayer2, one);
  expect_error({kLayer1 + "] its checksum", "it is what " + kLayer2 + " should be",
                "tensor \"1.bias\" is missing"});
}

TEST_F(Faults, AFileWasRemoved) {
  files_.remove_all(kDirectory + optim_states_file(3, 0));
  files_.remove_all(kDirectory + kLayer2);
  expect_error({optim_states_file(3, 0) + "] is missing; it holds tensors \"3.weight.exp_avg\"",
                kLayer2 + "] is missing"});
}

TEST_F(Faults, AFileWasCut) {
  const std::string whole = bytes(kLayer1);
  put(kLayer1, whole.substr(0, whole.size() - 5));
  expect_error({kLayer1, "has " + std::to_string(whole.size() - 5) + " bytes; expected",
                "it cannot be read", "tensor \"1.bias\": data_offsets"});
}

TEST_F(Faults, AFileBecameADirectory) {
  files_.remove_all(kDirectory + kLayer1);
  files_.make_directory(kDirectory + kLayer1);
  expect_error({kLayer1 + "] is a directory; it holds tensors \"1.bias\", \"1.weight\""});
}

TEST_F(Faults, ADataByteWasChanged) {
  std::string changed = bytes(kLayer1);
  changed[changed.size() - 3] ^= 0x10;  // in the bias: 12 bytes at the end
  put(kLayer1, changed);
  expect_error({kLayer1, "its checksum is", "the data of \"1.bias\" were changed"});
}

TEST_F(Faults, EngineJsonWasChanged) {
  put("engine.json", "{\"version\": 5}");
  expect_error({"engine.json] was changed"});
}

TEST_F(Faults, AnyChangedByteOfAnyFileIsFound) {
  int changes = 0;
  for (const std::string& name : files_.list("/ckpt/t")) {
    const std::string original = bytes(name);
    const std::size_t step = 1 + original.size() / 60;  // header, padding and data of each file
    for (std::size_t i = 0; i < original.size(); i += step) {
      std::string changed = original;
      changed[i] ^= 1;
      put(name, changed);
      const std::string error = load_error(files_, 1, "/ckpt");
      EXPECT_NE(error.find(name), std::string::npos) << name << " byte " << i << ": " << error;
      ++changes;
    }
    put(name, original);
  }
  EXPECT_GT(changes, 400);
  EXPECT_EQ(load_version(files_, 1, "/ckpt"), 4);
}

TEST_F(Faults, FilesThatTheManifestDoesNotListAreNotRead) {
  put(model_states_file(9, 0), "the layers of a larger model, saved here before");
  put("layer_99-model_00-optim_states.safetensors", bytes(kLayer1));
  EXPECT_EQ(load_version(files_, 3, "/ckpt"), 4);
}

TEST_F(Faults, AManifestOfAnotherSaveDoesNotFit) {
  save_version(files_, 2, "/ckpt", "u", 5);
  put("manifest.json", get_bytes(files_, "/ckpt/u/manifest.json"));
  for (const int ranks : {1, 3}) {
    const std::string error = load_error(files_, ranks, "/ckpt", "t");
    EXPECT_NE(error.find("engine.json] was changed"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace penstock::checkpoint::testing
