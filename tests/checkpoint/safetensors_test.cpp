#include "checkpoint/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/hash.h"
#include "tensor/error.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;
using tensor::DType;
using tensor::Tensor;

constexpr DType kAll[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                          DType::kI32, DType::kI16, DType::kU8,  DType::kI8,   DType::kBool};

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), tensor.nbytes()};
}

// Every bit pattern that fits: NaNs and negative zeros must survive.
Tensor patterned(const tensor::Context& context, const tensor::Shape& shape, DType dtype) {
  const Tensor result = Tensor::empty(context, shape, dtype);
  for (std::size_t i = 0; i < result.nbytes(); ++i) {
    const std::size_t value = dtype == DType::kBool ? i % 2 : i * 97 + 255;
    result.raw()[i] = static_cast<std::byte>(value);
  }
  return result;
}

TEST(Safetensors, AllTypesAndShapesComeBackBitForBit) {
  const TemporaryFolder folder;
  const tensor::Context context = cpu_context();
  std::vector<NamedTensor> tensors;
  for (const DType dtype : kAll) {
    for (const tensor::Shape& shape : {tensor::Shape{}, tensor::Shape{0}, tensor::Shape{3, 0, 2},
                                       tensor::Shape{5, 7}, tensor::Shape{1, 1, 2, 1, 3, 1}}) {
      tensors.emplace_back(std::string(name_of(dtype)) + shape.to_string(),
                           patterned(context, shape, dtype));
    }
  }
  write_safetensors(folder / "all", tensors, {{"note", "\xC3\xBC"}});
  const SafetensorsFile file = SafetensorsFile::open(folder / "all");
  EXPECT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"note", "\xC3\xBC"}}));
  for (const NamedTensor& written : tensors) {
    const StoredTensor& stored = file.at(written.name);
    EXPECT_EQ(stored.shape, written.shape);
    ASSERT_EQ(stored.dtype, written.data.dtype());
    const Tensor read = Tensor::empty(context, stored.shape, stored.dtype);
    file.read(written.name, read);
    EXPECT_EQ(bytes_of(read), bytes_of(written.data)) << written.name;
  }
}

TEST(Safetensors, TheFileIsTheseBytes) {
  const tensor::Context context = cpu_context();
  MemoryFileSystem files;
  const std::vector<NamedTensor> tensors = {
      {"b", make<std::uint8_t>(context, {2}, {1, 2})},
      {"z", make<float>(context, {1}, {1.0f})},
      {"a", make<float>(context, {}, {-2.0f})},
      {"c", tensor::Shape{1, 1}, make<double>(context, {1}, {0.5})}};
  const FileDigest digest = write_safetensors("/f", tensors, {}, files);
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("c":{"dtype":"F64","shape":[1,1],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
                             R"("z":{"dtype":"F32","shape":[1],"data_offsets":[12,16]},)"
                             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[16,18]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  ASSERT_NE(padded, header.size()) << "the test is to show padding";
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(padded & 0xff);
  expected[1] = static_cast<char>(padded >> 8);
  expected += header + std::string(padded - header.size(), ' ');
  expected += std::string("\0\0\0\0\0\0\xe0\x3f\0\0\0\xc0\0\0\x80\x3f\1\2", 18);
  EXPECT_EQ(get_bytes(files, "/f"), expected);
  EXPECT_EQ(digest.bytes, expected.size());
  EXPECT_EQ(digest.checksum, checksum_of(expected));
  EXPECT_EQ(digest.tensor_checksums,
            (std::vector<std::uint64_t>{checksum_of("\1\2"), checksum_of({"\0\0\x80\x3f", 4}),
                                        checksum_of({"\0\0\0\xc0", 4}),
                                        checksum_of({"\0\0\0\0\0\0\xe0\x3f", 8})}));
}

TEST(Safetensors, TensorsAreAlignedToTheirElements) {
  const tensor::Context context = cpu_context();
  MemoryFileSystem files;
  std::vector<NamedTensor> tensors;
  for (const DType dtype : kAll) {
    tensors.emplace_back(std::string(name_of(dtype)), patterned(context, {3}, dtype));
  }
  write_safetensors("/f", tensors, {}, files);
  const SafetensorsFile file = SafetensorsFile::open("/f", files);
  for (const StoredTensor& stored : file.tensors()) {
    EXPECT_EQ(stored.begin % size_of(stored.dtype), 0u) << stored.name;
  }
}

TEST(Safetensors, AGivenFormatIsKept) {
  MemoryFileSystem files;
  write_safetensors("/f", {}, {{"format", "flax"}}, files);
  EXPECT_EQ(SafetensorsFile::open("/f", files).metadata().at("format"), "flax");
}

TEST(Safetensors, AnElementRangeIsReadWithoutTheRest) {
  const tensor::Context context = cpu_context();
  MemoryFileSystem files;
  const NamedTensor tensors[] = {{"first", make<float>(context, {2}, {8, 9})},
                                 {"w", make<float>(context, {2, 3}, {10, 11, 12, 13, 14, 15})}};
  write_safetensors("/f", tensors, {}, files);
  const SafetensorsFile file = SafetensorsFile::open("/f", files);
  const Tensor part = Tensor::empty(context, {3}, DType::kF32);
  file.read("w", 2, part);
  EXPECT_EQ(values<float>(part), (std::vector<float>{12, 13, 14}));
  const Tensor none = Tensor::empty(context, {0}, DType::kF32);
  EXPECT_NO_THROW(file.read("w", 6, none));
}

TEST(Safetensors, LargeTensorsAreWrittenInBlocks) {
  const TemporaryFolder folder;
  const tensor::Context context = cpu_context();
  const NamedTensor tensors[] = {{"w", patterned(context, {(5 << 20) / 4 + 3}, DType::kF32)},
                                 {"v", patterned(context, {1 << 18}, DType::kF32)}};
  const FileDigest digest = write_safetensors(folder / "f", tensors);
  const std::string bytes = get_bytes(posix_file_system(), folder / "f");
  EXPECT_EQ(digest.checksum, checksum_of(bytes));
  EXPECT_EQ(digest.tensor_checksums[0], checksum_of(bytes_of(tensors[0].data)));
  EXPECT_EQ(bytes.substr(bytes.size() - tensors[0].data.nbytes()), bytes_of(tensors[0].data));
}

TEST(Safetensors, WhatCannotBeStoredIsRefusedBeforeAFileIsMade) {
  const tensor::Context context = cpu_context();
  MemoryFileSystem files;
  const Tensor one = make<float>(context, {1}, {1});
  const auto error = [&](const std::vector<NamedTensor>& tensors, const Metadata& metadata = {}) {
    return message<tensor::InvalidArgument>(
        [&] { write_safetensors("/f", tensors, metadata, files); });
  };
  EXPECT_NE(error({{"w", one}, {"w", one}}).find("\"w\" is given twice"), std::string::npos);
  EXPECT_NE(error({{"__metadata__", one}}).find("reserved"), std::string::npos);
  EXPECT_NE(error({{"\xff", one}}).find("UTF-8"), std::string::npos);
  EXPECT_NE(error({}, {{"a", "\xff"}}).find("UTF-8"), std::string::npos);
  EXPECT_NE(error({{"w", {2}, one}}).find("stored as [2]"), std::string::npos);
  EXPECT_NE(error({{"w", Tensor()}}).find("undefined"), std::string::npos);
  const Tensor meta = Tensor::empty(penstock::testing::meta_context(), {1}, DType::kF32);
  EXPECT_NE(error({{"w", meta}}).find("on cpu"), std::string::npos);
  EXPECT_EQ(files.operations().size(), 0u);
}

}  // namespace
}  // namespace penstock::checkpoint::testing
