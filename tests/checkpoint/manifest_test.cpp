#include "checkpoint/manifest.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/hash.h"
#include "tests/checkpoint/support.h"

namespace penstock::checkpoint::testing {
namespace {

using tensor::DType;
using tensor::Shape;

constexpr const char* kFile0 = "layer_00-model_00-model_states.safetensors";
constexpr const char* kFile1 = "layer_00-model_01-model_states.safetensors";

// The worked example of docs/checkpoint-format.md.
Manifest example() {
  Manifest manifest;
  manifest.saved_at = 1767225600000000000;
  manifest.files["engine.json"] = {12, 0x0f6bde1c6c58a0d1};
  manifest.files[kFile0] = {248, 0xa7a2f25cb1cd4e09};
  manifest.files[kFile1] = {152, 0x5d0e2a4f0c9b7716};
  ManifestTensor& weight = manifest.tensors["0.weight"];
  weight = {DType::kF32, {2, 4}, {}};
  weight.pieces.push_back({kFile0, Region::slice({2, 4}, 1, 0, 2), 1});
  weight.pieces.push_back({kFile1, Region::slice({2, 4}, 1, 2, 4), 2});
  manifest.tensors["0.bias"] = {DType::kF32, {4}, {{kFile0, Region::whole({4}), 3}}};
  return manifest;
}

std::string with_body(const std::string& body) {
  return "{\"checksum\":\"" + to_hex(checksum_of(body)) + "\",\"manifest\":" + body + "}\n";
}

std::string parse_error(const std::string& body) {
  return message<FileError>([&] { parse_manifest("m.json", with_body(body)); });
}

TEST(Manifest, IsTheDocumentedText) {
  const std::string body =
      "{\"version\":1,\"saved_at\":1767225600000000000,\n"
      "\"files\":[\n"
      "{\"file\":\"engine.json\",\"bytes\":12,\"xxh3\":\"0f6bde1c6c58a0d1\"},\n"
      "{\"file\":\"layer_00-model_00-model_states.safetensors\",\"bytes\":248,"
      "\"xxh3\":\"a7a2f25cb1cd4e09\"},\n"
      "{\"file\":\"layer_00-model_01-model_states.safetensors\",\"bytes\":152,"
      "\"xxh3\":\"5d0e2a4f0c9b7716\"}],\n"
      "\"tensors\":[\n"
      "{\"name\":\"0.bias\",\"dtype\":\"F32\",\"shape\":[4],\"pieces\":["
      "{\"file\":\"layer_00-model_00-model_states.safetensors\","
      "\"xxh3\":\"0000000000000003\"}]},\n"
      "{\"name\":\"0.weight\",\"dtype\":\"F32\",\"shape\":[2,4],\"pieces\":["
      "{\"file\":\"layer_00-model_00-model_states.safetensors\",\"slice\":[1,0,2],"
      "\"xxh3\":\"0000000000000001\"},"
      "{\"file\":\"layer_00-model_01-model_states.safetensors\",\"slice\":[1,2,4],"
      "\"xxh3\":\"0000000000000002\"}]}]}";
  EXPECT_EQ(to_text(example()), with_body(body));
}

TEST(Manifest, ComesBackFromItsText) {
  Manifest manifest = example();
  manifest.tensors["s"] = {DType::kI64, {}, {{kFile0, Region::whole({}), 4}}};
  manifest.tensors["r"] = {DType::kBF16, {2, 6}, {}};
  manifest.tensors["r"].pieces.push_back(
      {kFile1, Region::slice({2, 6}, 1, 1, 4).elements(2, 5), 5});
  const Manifest parsed = parse_manifest("m.json", to_text(manifest));
  EXPECT_EQ(to_text(parsed), to_text(manifest));
  EXPECT_EQ(parsed.saved_at, manifest.saved_at);
  const ManifestTensor& range = parsed.tensors.at("r");
  EXPECT_EQ(range.dtype, DType::kBF16);
  EXPECT_EQ(range.shape, (Shape{2, 6}));
  EXPECT_EQ(range.pieces[0].region, manifest.tensors["r"].pieces[0].region);
  EXPECT_EQ(range.pieces[0].checksum, 5u);
}

TEST(Manifest, NamesOfStoredPartsSayWhichPart) {
  const Shape shape{4, 32};
  const Region slice = Region::slice(shape, 1, 8, 16);
  EXPECT_EQ(stored_name("w", shape, Region::whole(shape)), "w");
  EXPECT_EQ(stored_name("w", shape, Region::slice(shape, 0, 0, 4)), "w");
  EXPECT_EQ(stored_name("w", shape, slice), "w#1[8:16]");
  EXPECT_EQ(stored_name("w", shape, Region::whole(shape).elements(10, 20)), "w[10:20]");
  EXPECT_EQ(stored_name("w", shape, slice.elements(1, 3)), "w#1[8:16][1:3]");
}

TEST(Manifest, RefusesOtherVersionsFieldsAndTypes) {
  const std::string head = "{\"version\":1,\"saved_at\":1,";
  EXPECT_NE(parse_error("{\"version\":2}").find("version 2; expected 1"), std::string::npos);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "is not an object"},
      {"{", "is not JSON"},
      {"{}", "has no version"},
      {"{\"version\":1.0}", "version is or holds 1.0"},
      {head + "\"files\":[],\"tensors\":[],\"more\":1}", "has a field \"more\""},
      {head + "\"files\":{},\"tensors\":[]}", "files is not an array"},
      {head + "\"files\":[{\"file\":1,\"bytes\":1,\"xxh3\":\"0000000000000000\"}],\"tensors\":[]}",
       "file is not a string"},
      {head + "\"files\":[{\"file\":\"a\",\"bytes\":-1}],\"tensors\":[]}", "holds -1"},
      {head + "\"files\":[{\"file\":\"a\",\"bytes\":1,\"xxh3\":\"12\"}],\"tensors\":[]}",
       "16 hexadecimal digits"},
      {head + "\"files\":[],\"tensors\":[{\"name\":\"w\",\"dtype\":\"F3\",\"shape\":[],"
              "\"pieces\":[]}]}",
       "tensor \"w\" has the dtype \"F3\""},
      {head + "\"files\":[],\"tensors\":[{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[2],"
              "\"pieces\":[{\"file\":\"a\",\"slice\":[0,1,3],\"xxh3\":\"0000000000000000\"}]}]}",
       "impossible shape or region"},
      {head + "\"files\":[],\"tensors\":[{\"name\":\"w\",\"dtype\":\"F32\","
              "\"shape\":[4611686018427387904,4],\"pieces\":[]}]}",
       "impossible shape or region"}};
  for (const auto& [body, text] : cases) {
    const std::string error = parse_error(body);
    EXPECT_TRUE(error.starts_with("[m.json] ")) << error;
    EXPECT_NE(error.find(text), std::string::npos) << body << "\n" << error;
  }
}

TEST(Manifest, EveryChangedByteIsFound) {
  const std::string text = to_text(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_THROW(parse_manifest("m.json", changed), FileError) << i;
    EXPECT_THROW(parse_manifest("m.json", text.substr(0, i)), FileError) << i;
  }
}

// What check_tiling says of a tensor [2, 6] in these pieces.
std::string tiling_error(const std::vector<Region>& regions) {
  Manifest manifest;
  ManifestTensor& tensor = manifest.tensors["w"];
  tensor.shape = {2, 6};
  for (const Region& region : regions) {
    tensor.pieces.push_back({"f", region.normalized(tensor.shape), 0});
  }
  return message<FileError>([&] { check_tiling(manifest); });
}

TEST(Manifest, PiecesMustHoldEveryElementOnce) {
  const Shape shape{2, 6};
  const Region all = Region::whole(shape);
  const auto slice = [&](int axis, std::int64_t begin, std::int64_t end) {
    return Region::slice(shape, axis, begin, end);
  };
  const std::string fine = "nothing was thrown";
  EXPECT_EQ(tiling_error({all}), fine);
  EXPECT_EQ(tiling_error({all.elements(7, 12), all.elements(0, 7)}), fine);
  EXPECT_EQ(tiling_error({slice(1, 4, 6), slice(1, 0, 4)}), fine);
  EXPECT_EQ(
      tiling_error({slice(1, 0, 4).elements(0, 3), slice(1, 4, 6), slice(1, 0, 4).elements(3, 8)}),
      fine);
  const std::vector<std::pair<std::vector<Region>, std::string>> faults = {
      {{}, "it has no pieces"},
      {{all, all}, "elements from 0 on are stored twice"},
      {{all.elements(0, 5)}, "elements from 5 on are not stored"},
      {{all.elements(0, 5), all.elements(6, 12)}, "elements from 5 on are not stored"},
      {{all.elements(0, 7), all.elements(6, 12)}, "elements from 6 on are stored twice"},
      {{slice(1, 0, 4)}, "index 4 of axis 1 is not stored"},
      {{slice(1, 0, 2), slice(1, 3, 6)}, "index 2 of axis 1 is not stored"},
      {{slice(1, 0, 4), slice(1, 3, 6)}, "index 3 of axis 1 is stored twice"},
      {{slice(1, 0, 4), all}, "stored twice"},
      {{slice(0, 0, 1), slice(1, 0, 3)}, "sliced along two axes"},
      {{slice(1, 0, 4).elements(0, 7), slice(1, 4, 6)},
       "elements from 7 on are not stored (axis 1 [0, 4))"}};
  for (const auto& [regions, text] : faults) {
    const std::string error = tiling_error(regions);
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nexpected: " << text;
    EXPECT_NE(error.find("tensor \"w\" [2, 6]"), std::string::npos) << error;
  }
}

TEST(Manifest, ATensorWithoutElementsIsGivenOnce) {
  Manifest manifest;
  manifest.tensors["w"] = {DType::kF32, {0, 3}, {{"f", Region::whole({0, 3}), 0}}};
  EXPECT_NO_THROW(check_tiling(manifest));
  manifest.tensors["w"].pieces.push_back({"g", Region::whole({0, 3}), 0});
  EXPECT_THROW(check_tiling(manifest), FileError);
}

TEST(Manifest, MergingFindsFilesTwiceAndOtherTypes) {
  Manifest one = example();
  Manifest twice;
  twice.files[kFile1] = {};
  EXPECT_NE(message<FileError>([&] { merge(one, twice); }).find(kFile1), std::string::npos);
  Manifest other;
  other.files["g"] = {};
  other.tensors["0.bias"] = {DType::kF64, {4}, {{"g", Region::whole({4}), 0}}};
  const std::string error = message<FileError>([&] { merge(one, other); });
  EXPECT_NE(error.find("\"0.bias\" is f32 [4]"), std::string::npos) << error;
  EXPECT_NE(error.find("f64 [4] in g"), std::string::npos) << error;
}

}  // namespace
}  // namespace penstock::checkpoint::testing
