// Damaged headers, by the thousand: each is read in full or refused with a FileError. Meant to be
// run under the address and undefined-behaviour sanitizers too.
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;

constexpr int kInputs = 6000;

// One to four damages: a bit flipped, a byte set, bytes removed, bytes doubled, a piece of JSON put
// in. Numbers and punctuation are what the parser decides by.
std::string damaged(std::string bytes, std::mt19937_64& random) {
  static const std::string kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        ",",
                                        ":",
                                        "-1",
                                        "0",
                                        "1e9",
                                        "null",
                                        "\\",
                                        "9999999999999999999",
                                        " ",
                                        "\xff",
                                        "\"w\":",
                                        "4.5",
                                        "\\u0000"};
  for (std::uint64_t count = 1 + random() % 4; count > 0 && !bytes.empty(); --count) {
    const std::size_t at = random() % bytes.size();
    const std::size_t length = 1 + random() % 9;
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default:
        bytes.insert(at, kPieces[random() % std::size(kPieces)]);
    }
  }
  return bytes;
}

std::string good_file() {
  const tensor::Context context = cpu_context();
  MemoryFileSystem files;
  const NamedTensor tensors[] = {
      {"layer.0.weight", make<float>(context, {2, 3}, {1, 2, 3, 4, 5, 6})},
      {"layer.0.bias", make<std::int64_t>(context, {2}, {7, 8})},
      {"\xC3\xA9t\xC3\xA9 \"1\"", make<std::uint8_t>(context, {3}, {1, 0, 1})},
      {"none", tensor::Tensor::empty(context, {0, 5}, tensor::DType::kF16)}};
  write_safetensors("/f", tensors, {{"step", "12"}}, files);
  return get_bytes(files, "/f");
}

// True when the file was accepted.
bool read_everything(const std::string& bytes) {
  MemoryFileSystem files;
  put_bytes(files, "/f", bytes);
  try {
    const SafetensorsFile file = SafetensorsFile::open("/f", files);
    for (const StoredTensor& stored : file.tensors()) {
      file.read(stored.name, tensor::Tensor::empty(cpu_context(), stored.shape, stored.dtype));
    }
    return true;
  } catch (const FileError&) {
    return false;
  }
}

TEST(SafetensorsFuzz, DamagedFilesAreReadOrRefused) {
  const std::string good = good_file();
  ASSERT_TRUE(read_everything(good));
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) accepted += read_everything(damaged(good, random)) ? 1 : 0;
  EXPECT_GT(accepted, 0) << "damage to names or data leaves a legal file";
  EXPECT_LT(accepted, kInputs / 2);
}

TEST(SafetensorsFuzz, DamagedHeadersBehindARightLengthAreReadOrRefused) {
  const std::string good = good_file();
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  const std::string header = good.substr(8, length);
  const std::string data = good.substr(8 + length);
  std::mt19937_64 random(2);
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    const std::string changed = damaged(header, random);
    const std::uint64_t changed_length = changed.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &changed_length, 8);
    accepted += read_everything(bytes + changed + data) ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kInputs / 2);
}

TEST(SafetensorsFuzz, CutFilesAreRefused) {
  const std::string good = good_file();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(read_everything(good.substr(0, size))) << size;
  }
}

TEST(ManifestFuzz, DamagedManifestsAreRefused) {
  Manifest manifest;
  manifest.files["a.safetensors"] = {100, 1};
  manifest.tensors["w"] = {tensor::DType::kF32, {2, 4}, {}};
  manifest.tensors["w"].pieces.push_back({"a.safetensors", Region::slice({2, 4}, 1, 0, 3), 7});
  const std::string good = to_text(manifest);
  EXPECT_NO_THROW(parse_manifest("m", good));
  std::mt19937_64 random(3);
  for (int i = 0; i < kInputs; ++i) {
    const std::string changed = damaged(good, random);
    if (changed == good) continue;
    EXPECT_THROW(parse_manifest("m", changed), FileError) << changed;
  }
}

}  // namespace
}  // namespace penstock::checkpoint::testing
