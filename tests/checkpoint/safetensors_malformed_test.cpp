// Files that are not what they claim: each gives an error that names the file, the tensor where
// there is one, and the check; nothing outside of the file is read.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"
#include "tests/support/memory_file_system.h"

namespace penstock::checkpoint::testing {
namespace {

using penstock::testing::MemoryFileSystem;

std::string length_bytes(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, '\1');
}

// A header with the single tensor "w".
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

std::string error_of(const std::string& bytes) {
  MemoryFileSystem files;
  put_bytes(files, "/bad.safetensors", bytes);
  return message<FileError>([&] { SafetensorsFile::open("/bad.safetensors", files); });
}

struct Case {
  const char* name;
  std::string bytes;
  std::vector<std::string> says;
};

std::vector<Case> offset_cases() {
  const std::string w = "tensor \"w\"";
  const std::string f32 = "F32";
  return {
      {"BeginAfterEnd", file_of(entry(f32, "[1]", "[4,0]"), 4), {w, "begin is after end"}},
      {"EndBeyondFile",
       file_of(entry(f32, "[1000,1000]", "[0,4000000]"), 4),
       {w, "reach past the data, which has 4 bytes"}},
      {"MegabytesClaimedFourBytesThere",
       file_of(entry(f32, "[1000,1000]", "[0,4]"), 4),
       {w, "hold 4 bytes; expected 4000000 for F32 [1000, 1000]"}},
      {"NegativeOffset",
       file_of(entry(f32, "[1]", "[-4,0]"), 4),
       {w, "data_offsets holds -4; expected whole numbers"}},
      {"FractionalOffset", file_of(entry(f32, "[1]", "[0,4.5]"), 4), {w, "data_offsets holds 4.5"}},
      {"WholeNumberWithAFraction",
       file_of(entry(f32, "[1]", "[0,4.0]"), 4),
       {w, "data_offsets holds 4.0"}},
      {"OffsetOver64Bits",
       file_of(entry(f32, "[1]", "[0,18446744073709551620]"), 4),
       {w, "data_offsets holds 18446744073709551620"}},
      {"OneOffset", file_of(entry(f32, "[1]", "[4]"), 4), {w, "has 1 numbers; expected 2"}},
      {"ThreeOffsets", file_of(entry(f32, "[1]", "[0,4,4]"), 4), {w, "has 3 numbers; expected 2"}},
      {"OffsetsNotAnArray",
       file_of(entry(f32, "[1]", "4"), 4),
       {w, "data_offsets is 4; expected an array"}},
      {"NestedOffsets", file_of(entry(f32, "[1]", "[[0],4]"), 4), {w, "holds an array"}},
      {"ShapeOverflows",
       file_of(entry(f32, "[8589934592,8589934592]", "[0,4]"), 4),
       {w, "overflows 64 bits"}},
      {"ShapeOverflowsToTheRightSize",  // 2^62 × 4 × 4 bytes = 2^66, which is 0 in 64 bits
       file_of(entry(f32, "[4611686018427387904,4]", "[0,0]"), 0),
       {w, "overflows 64 bits"}},
      {"ShapeOverflowsBeforeAZero",
       file_of(entry("U8", "[4294967296,4294967296,0]", "[0,0]"), 0),
       {w, "overflows 64 bits"}},
      {"DimensionOver63Bits",
       file_of(entry("U8", "[0,18446744073709551615]", "[0,0]"), 0),
       {w, "overflows 63 bits"}},
      {"NegativeDimension", file_of(entry(f32, "[-1]", "[0,4]"), 4), {w, "shape holds -1"}},
      {"SevenDimensions",
       file_of(entry("U8", "[1,1,1,1,1,1,1]", "[0,1]"), 1),
       {w, "7 dimensions; Penstock holds up to 6"}},
      {"SizeNotShapeTimesType",
       file_of(entry(f32, "[2]", "[0,4]"), 4),
       {w, "hold 4 bytes; expected 8 for F32 [2]"}},
      {"UnknownDType",
       file_of(entry("F8_E4M3", "[4]", "[0,4]"), 4),
       {w, "dtype \"F8_E4M3\"; expected BOOL"}},
      {"LowerCaseDType", file_of(entry("f32", "[1]", "[0,4]"), 4), {w, "dtype \"f32\""}},
  };
}

std::vector<Case> layout_cases() {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const std::string b = R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]})";
  const std::string overlapping = R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]})";
  const std::string later = R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]})";
  return {
      {"Hole",
       file_of("{" + a + "," + later + "}", 5),
       {"tensor \"b\"", "begin at 3; expected at 2"}},
      {"HoleAtTheBeginning",
       file_of("{" + b + "}", 4),
       {"tensor \"b\"", "begin at 2; expected at 0, where the data begin"}},
      {"Overlap",
       file_of("{" + a + "," + overlapping + "}", 3),
       {"tensor \"b\"", "begin at 1; expected at 2"}},
      {"BytesBehindTheLastTensor",
       file_of("{" + a + "," + b + "}", 5),
       {"tensor \"b\", the last, ends at 4", "the data have 5 bytes"}},
      {"DataWithoutTensors", file_of("{}", 1), {"there are no tensors", "the data have 1 bytes"}},
      {"NameTwice", file_of("{" + a + "," + a + "}", 2), {"\"a\" is given twice"}},
      {"NameTwiceInOtherSpelling",  // \u0061 is a
       file_of("{" + a + R"(,"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 2),
       {"\"a\" is given twice"}},
      {"FieldTwice",
       file_of(R"({"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
       {"tensor \"w\"", "\"dtype\" is given twice"}},
      {"UnknownField",
       file_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1),
       {"tensor \"w\"", "unknown field \"strides\""}},
      {"NoDType",
       file_of(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1),
       {"tensor \"w\"", "has no dtype"}},
      {"NoShape",
       file_of(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1),
       {"tensor \"w\"", "has no shape"}},
      {"NoOffsets",
       file_of(R"({"w":{"dtype":"U8","shape":[1]}})", 1),
       {"tensor \"w\"", "has no data_offsets"}},
      {"TensorIsNull", file_of(R"({"w":null})", 0), {"\"w\" is null; expected an object"}},
      {"TensorIsAString", file_of(R"({"w":"F32"})", 0), {"\"w\" is the string \"F32\""}},
      {"MetadataNotStrings",
       file_of(R"({"__metadata__":{"step":7}})", 0),
       {"__metadata__", "\"step\" is 7; expected a string"}},
      {"MetadataNested",
       file_of(R"({"__metadata__":{"step":{}}})", 0),
       {"__metadata__", "\"step\" is an object; expected a string"}},
      {"MetadataTwice",
       file_of(R"({"__metadata__":{},"__metadata__":{}})", 0),
       {"\"__metadata__\" is given twice"}},
  };
}

std::vector<Case> file_cases() {
  const std::string good = entry("F32", "[1]", "[0,4]");
  return {
      {"EmptyFile", "", {"has 0 bytes; expected at least 8"}},
      {"FourBytes", "\1\2\3\4", {"has 4 bytes; expected at least 8"}},
      {"LengthAlone", length_bytes(2), {"length is 2 but only 0 bytes follow"}},
      {"HeaderLengthZero", length_bytes(0) + "{}", {"does not begin with '{'"}},
      {"HeaderLengthSeven", length_bytes(7) + "{\"a\":1}", {"\"a\" is 1; expected an object"}},
      {"HeaderLengthTwoTo63",
       length_bytes(std::uint64_t{1} << 63) + "{}",
       {"length is 9223372036854775808; expected at most 100000000"}},
      {"HeaderLengthMost", length_bytes(UINT64_MAX) + "{}", {"expected at most 100000000"}},
      {"HeaderJustTooLong", length_bytes(100'000'001) + "{}", {"expected at most 100000000"}},
      {"HeaderLongerThanFile", length_bytes(100) + "{}", {"length is 100 but only 2 bytes follow"}},
      {"NotJson", file_of("{hello}", 0), {"the header is not JSON"}},
      {"NotAnObject", file_of("[1,2,3]", 0), {"does not begin with '{'"}},
      {"SpaceBeforeTheObject", file_of(" {}", 0), {"does not begin with '{'"}},
      {"ByteOrderMark", file_of("\xEF\xBB\xBF{}", 0), {"does not begin with '{'"}},
      {"TwoObjects", file_of("{}{}", 0), {"the header is not JSON"}},
      {"Comment", file_of("{}//x", 0), {"the header is not JSON"}},
      {"HiddenBehindAZero", file_of(std::string("{}\0garbage", 10), 0), {"byte 2 is zero"}},
      {"InvalidUtf8",
       file_of("{\"\xC3\x28\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0),
       {"not JSON in UTF-8", "ill-formed UTF-8"}},
      {"OverlongUtf8", file_of("{\"\xC0\xAF\":1}", 0), {"ill-formed UTF-8"}},
      {"LoneSurrogate", file_of(R"({"\ud800":1})", 0), {"the header is not JSON", "surrogate"}},
      {"TruncatedInHeader",
       file_of(good, 4).substr(0, 20),
       {"only 12 bytes follow", "the file is cut off"}},
      {"TruncatedInData",
       file_of(good, 4).substr(0, 8 + good.size() + 3),
       {"tensor \"w\"", "reach past the data, which has 3 bytes"}},
      {"DeeplyNested", file_of("{\"a\":" + std::string(1'000'000, '['), 0), {"an array"}},
  };
}

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string error = error_of(c.bytes);
    EXPECT_NE(error.find("[/bad.safetensors]"), std::string::npos) << error;
    for (const std::string& text : c.says) {
      EXPECT_NE(error.find(text), std::string::npos) << error << "\nexpected: " << text;
    }
  }
}

TEST(SafetensorsMalformed, ThePremiseIsAGoodFile) {
  EXPECT_EQ(error_of(file_of(entry("F32", "[1]", "[0,4]"), 4)), "nothing was thrown");
  EXPECT_EQ(error_of(file_of("{}   ", 0)), "nothing was thrown");
}

TEST(SafetensorsMalformed, OffsetsShapesAndTypes) {
  check(offset_cases());
}

TEST(SafetensorsMalformed, LayoutAndFields) {
  check(layout_cases());
}

TEST(SafetensorsMalformed, FilesAndHeaders) {
  check(file_cases());
}

TEST(SafetensorsMalformed, ABoolIsZeroOrOne) {
  MemoryFileSystem files;
  put_bytes(files, "/b", file_of(entry("BOOL", "[3]", "[0,3]"), 2) + "\2");
  const SafetensorsFile file = SafetensorsFile::open("/b", files);
  const tensor::Tensor out = tensor::Tensor::empty(cpu_context(), {3}, tensor::DType::kBool);
  const std::string error = message<FileError>([&] { file.read("w", out); });
  EXPECT_NE(error.find("tensor \"w\": a BOOL is 2; expected 0 or 1"), std::string::npos) << error;
}

TEST(SafetensorsMalformed, AFileCutAfterItWasOpenedIsAnError) {
  const TemporaryFolder folder;
  FileSystem& files = posix_file_system();
  const std::string bytes = file_of(entry("F32", "[4]", "[0,16]"), 16);
  put_bytes(files, folder / "f", bytes);
  const SafetensorsFile file = SafetensorsFile::open(folder / "f", files);
  std::filesystem::resize_file(folder / "f", bytes.size() - 6);
  const tensor::Tensor out = tensor::Tensor::empty(cpu_context(), {4}, tensor::DType::kF32);
  const std::string error = message<FileError>([&] { file.read("w", out); });
  EXPECT_NE(error.find("ends at byte"), std::string::npos) << error;
}

TEST(SafetensorsMalformed, WrongDestinationsAreRefused) {
  MemoryFileSystem files;
  put_bytes(files, "/f", file_of(entry("F32", "[4]", "[0,16]"), 16));
  const SafetensorsFile file = SafetensorsFile::open("/f", files);
  const tensor::Context context = cpu_context();
  const auto empty = [&](const tensor::Shape& shape, tensor::DType dtype) {
    return tensor::Tensor::empty(context, shape, dtype);
  };
  EXPECT_THROW(file.read("v", empty({4}, tensor::DType::kF32)), FileError);
  EXPECT_THROW(file.read("w", empty({2, 2}, tensor::DType::kF32)), FileError);
  EXPECT_THROW(file.read("w", empty({4}, tensor::DType::kI32)), FileError);
  EXPECT_THROW(file.read("w", 3, empty({2}, tensor::DType::kF32)), tensor::InvalidArgument);
  EXPECT_THROW(file.read("w", -1, empty({2}, tensor::DType::kF32)), tensor::InvalidArgument);
  EXPECT_THROW(file.read("w", tensor::Tensor()), tensor::InvalidArgument);
  EXPECT_THROW(file.read("w", tensor::Tensor::empty(penstock::testing::meta_context(), {4},
                                                    tensor::DType::kF32)),
               tensor::InvalidArgument);
}

}  // namespace
}  // namespace penstock::checkpoint::testing
