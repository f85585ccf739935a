#include "model/data/token_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/data/repeating_source.h"
#include "tensor/error.h"
#include "tests/model/binary_files.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace penstock::model {
namespace {

using testing::Bytes;
using testing::message;
using testing::put_little;
using testing::write_file;
using Tokens = std::vector<std::int32_t>;

constexpr std::uint64_t kSixteen = 20240520, kThirtyTwo = 20240801;

// llm.c's header, which says `count` tokens.
Bytes header(std::uint64_t magic, std::uint64_t version, std::uint64_t count) {
  Bytes bytes;
  for (const std::uint64_t number : {magic, version, count}) put_little(bytes, number, 4);
  bytes.resize(1024);
  return bytes;
}

Bytes with_tokens(Bytes bytes, const std::vector<std::uint64_t>& tokens, int width) {
  for (const std::uint64_t token : tokens) put_little(bytes, token, width);
  return bytes;
}

class TokenFiles : public ::testing::Test {
 protected:
  TokenFile file(const Bytes& bytes, TokenFormat format = TokenFormat::kDetect,
                 const std::string& name = "train.bin") const {
    return TokenFile(write_file(folder_ / name, bytes), format);
  }
  // What it says of the file, after its path.
  std::string refusal(const Bytes& bytes, TokenFormat format = TokenFormat::kDetect) const {
    const std::string text = message<tensor::InvalidArgument>([&] { file(bytes, format); });
    const std::string start = "[tokens] " + (folder_ / "train.bin").string() + " ";
    EXPECT_TRUE(text.starts_with(start)) << text;
    return text.substr(std::min(text.size(), start.size()));
  }

  const testing::TemporaryFolder folder_;
};

Tokens read_all(const TokenFile& file) {
  Tokens tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

TEST_F(TokenFiles, HoldTokensOfSixteenOrThirtyTwoBits) {
  const std::vector<std::uint64_t> tokens{1, 50256, 0, 256, 65535};
  const Tokens expected{1, 50256, 0, 256, 65535};
  EXPECT_EQ(read_all(file(with_tokens({}, tokens, 2))), expected);  // nanoGPT
  EXPECT_EQ(read_all(file(with_tokens({}, tokens, 2), TokenFormat::kNanoGpt)), expected);
  const Bytes sixteen = with_tokens(header(kSixteen, 1, 5), tokens, 2);
  EXPECT_EQ(read_all(file(sixteen)), expected);
  EXPECT_EQ(read_all(file(sixteen, TokenFormat::kLlmC)), expected);
  EXPECT_EQ(file(sixteen, TokenFormat::kNanoGpt).size(), 512 + 5);
  const Bytes thirty_two = with_tokens(header(kThirtyTwo, 7, 3), {128255, 1, 2147483647}, 4);
  EXPECT_EQ(read_all(file(thirty_two)), (Tokens{128255, 1, 2147483647}));
}

TEST_F(TokenFiles, RefuseWhatTheirHeadersDoNotSay) {
  EXPECT_EQ(refusal({1, 2, 3}),
            "has 3 bytes; expected 2 for each token, and llm.c's header if it has more");
  Bytes cut = header(kSixteen, 1, 0);
  cut.resize(1023);
  EXPECT_EQ(refusal(cut), "has 1023 bytes; expected llm.c's header of 1024");
  EXPECT_EQ(refusal({}, TokenFormat::kLlmC), "has 0 bytes; expected llm.c's header of 1024");
  EXPECT_EQ(
      refusal(header(7, 1, 0), TokenFormat::kLlmC),
      "begins with 7; expected llm.c's 20240520 (tokens of 16 bits) or 20240801 (of 32 bits)");
  EXPECT_EQ(refusal(with_tokens(header(kSixteen, 2, 1), {3}, 2)),
            "has version 2; expected 1 of llm.c's 20240520");
  EXPECT_EQ(refusal(with_tokens(header(kThirtyTwo, 1, 1), {3}, 4)),
            "has version 1; expected 7 of llm.c's 20240801");
  EXPECT_EQ(refusal(header(20240326, 3, 1)),
            "is weights of llm.c (20240326); expected tokens, 20240520 or 20240801");
  EXPECT_EQ(refusal(header(20240522, 1, 1)),
            "is an evaluation of llm.c (20240522); expected tokens, 20240520 or 20240801");
}

TEST_F(TokenFiles, RefuseSizesThatAreNotTheirs) {
  const std::string end = "; it is cut off or damaged";
  EXPECT_EQ(refusal(with_tokens(header(kSixteen, 1, 3), {1, 2}, 2)),
            "has 1028 bytes, but its header says 3 tokens, which are 1030" + end);
  EXPECT_EQ(refusal(with_tokens(header(kSixteen, 1, 1), {1, 2}, 2)),
            "has 1028 bytes, but its header says 1 tokens, which are 1026" + end);
  EXPECT_EQ(refusal(with_tokens(header(kThirtyTwo, 7, 2), {1, 2}, 2)),
            "has 1028 bytes, but its header says 2 tokens, which are 1032" + end);
  // As an int, −1; as a product in 32 bits, small again.
  EXPECT_EQ(refusal(header(kSixteen, 1, 0xffffffff)),
            "has 1024 bytes, but its header says 4294967295 tokens, which are 8589935614" + end);
  EXPECT_EQ(refusal(header(kThirtyTwo, 7, 0x40000000)),
            "has 1024 bytes, but its header says 1073741824 tokens, which are 4294968320" + end);
}

TEST_F(TokenFiles, RefuseTokensThatDoNotFit) {
  const TokenFile large = file(with_tokens(header(kThirtyTwo, 7, 2), {5, 0x80000000}, 4));
  Tokens tokens(1);
  large.read(0, tokens);
  EXPECT_EQ(tokens[0], 5);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { large.read(1, tokens); }),
            "[tokens] " + (folder_ / "train.bin").string() +
                " has 2147483648 at token 1; expected tokens below 2^31");
}

TEST_F(TokenFiles, RefuseFilesThatCannotBeRead) {
  EXPECT_EQ(
      message<tensor::InvalidArgument>([&] { TokenFile(folder_ / "none.bin"); }),
      "[data] cannot read " + (folder_ / "none.bin").string() + ": No such file or directory");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { TokenFile(folder_.path()); }),
            "[data] cannot read " + folder_.path().string() + ": it is not a regular file");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] {
              file({1, 2}, TokenFormat::kDetect, "train.bin.gz");
            }),
            "[tokens] " + (folder_ / "train.bin.gz").string() +
                " is compressed; unpack it first, with gunzip");
}

// Windows of tokens that count on.
class TokenWindows : public TokenFiles {
 protected:
  TokenFile counting(std::uint64_t count, const std::string& name, std::uint64_t from = 0) const {
    Bytes bytes;
    for (std::uint64_t i = 0; i < count; ++i) put_little(bytes, from + i, 2);
    return file(bytes, TokenFormat::kDetect, name);
  }
  // Eleven tokens, then eight from 100 on: of three tokens, three windows and two.
  std::unique_ptr<TokenSource> two_files(std::optional<std::uint64_t> seed = std::nullopt,
                                         std::int64_t vocabulary = 200) const {
    std::vector<TokenFile> files;
    files.push_back(counting(11, "a.bin"));
    files.push_back(counting(8, "b.bin", 100));
    return std::make_unique<TokenSource>(std::move(files), 3, vocabulary, seed);
  }
};

TEST_F(TokenWindows, PredictEveryTokenOfAFileButItsFirstOnce) {
  const auto source = two_files();
  EXPECT_EQ(source->remaining(), 5);
  const auto batch = source->next(4);
  EXPECT_EQ(batch->ids, (std::vector<std::int64_t>{0, 1, 2, 3}));
  ASSERT_EQ(batch->inputs[0].shape(), (tensor::Shape{4, 3}));
  EXPECT_EQ(testing::values<std::int32_t>(batch->inputs[0]),
            (Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102}));
  EXPECT_EQ(testing::values<std::int32_t>(batch->labels[0]),
            (Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 101, 102, 103}));
  EXPECT_EQ(testing::values<std::int32_t>(source->next(4)->labels[0]), (Tokens{104, 105, 106}));
  EXPECT_FALSE(source->next(1));
  source->seek(2);
  EXPECT_EQ(testing::values<std::int32_t>(source->next(1)->inputs[0]), (Tokens{6, 7, 8}));
}

TEST_F(TokenWindows, AreShuffledAndRepeatedAsOtherSamples) {
  RepeatingSource source(two_files(7));
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    const auto batch = source.next(5);
    Tokens firsts;
    for (std::int64_t row = 0; row < 5; ++row) {
      const std::int64_t sample = batch->ids[static_cast<std::size_t>(row)] - 5 * epoch;
      const std::int32_t first = batch->inputs[0].data<std::int32_t>()[3 * row];
      EXPECT_EQ(first, sample < 3 ? 3 * sample : 100 + 3 * (sample - 3));
      firsts.push_back(first);
    }
    EXPECT_FALSE(std::ranges::is_sorted(firsts));
  }
}

TEST_F(TokenWindows, NameATokenThatIsNotInTheVocabulary) {
  const auto source = two_files(std::nullopt, 105);
  EXPECT_TRUE(source->next(4));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { source->next(1); }),
            "[tokens] " + (folder_ / "b.bin").string() +
                " has 105 at token 5; expected tokens in [0, 105), the model's vocabulary");
  EXPECT_EQ(source->position(), 4);  // the source is usable
  source->seek(0);
  EXPECT_TRUE(source->next(4));
}

TEST_F(TokenWindows, NameAFileThatIsTooShortOrHasBecomeShorter) {
  const auto from = [](TokenFile&& file, std::int64_t context) {
    std::vector<TokenFile> files;
    files.push_back(std::move(file));
    return std::make_unique<TokenSource>(std::move(files), context, 200);
  };
  const std::string path = (folder_ / "a.bin").string();
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { from(counting(3, "a.bin"), 3); }),
            "[tokens] " + path +
                " has 3 tokens; expected at least 4, one window of the context and the token after "
                "it; leave it out, or take a shorter context");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { from(counting(0, "a.bin"), 3); }).substr(0, 30),
            ("[tokens] " + path).substr(0, 30));
  EXPECT_EQ(from(counting(4, "a.bin"), 3)->remaining(), 1);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { from(counting(4, "a.bin"), 0); }),
            "[tokens] expected a context of at least one token, got 0");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { TokenSource({}, 3, 200); }),
            "[tokens] expected at least one file");
  const auto source = from(counting(20, "a.bin"), 3);
  std::filesystem::resize_file(path, 9);
  EXPECT_TRUE(source->next(1));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { source->next(1); }),
            "[data] cannot read " + path +
                ": it ended at byte 9 of the 40 that it had when it was opened");
}

// Far more than memory, without the disk's: a file with a hole, as sparse files are.
TEST_F(TokenWindows, LieAnywhereInFilesLargerThanMemory) {
  const auto path = write_file(folder_ / "large.bin", header(kThirtyTwo, 7, 2000000000));
  std::filesystem::resize_file(path, 1024 + 4LL * 2000000000);
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(1024 + 4LL * 1999999990);
  out.put(77);
  out.close();
  std::vector<TokenFile> files;
  files.emplace_back(path);
  TokenSource source(std::move(files), 10, 100);
  source.seek(199999998);
  const auto batch = source.next(2);
  ASSERT_EQ(batch->rows(), 1);
  EXPECT_EQ(testing::values<std::int32_t>(batch->labels[0]),
            (Tokens{0, 0, 0, 0, 0, 0, 0, 0, 0, 77}));
  EXPECT_FALSE(source.next(1));
}

}  // namespace
}  // namespace penstock::model
