#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/data/in_memory_source.h"
#include "model/data/ranged_file.h"
#include "model/data/repeating_source.h"
#include "model/data/text_source.h"
#include "tensor/context.h"
#include "tensor/error.h"
#include "tests/support/errors.h"

namespace penstock::model {
namespace {

using tensor::Tensor;
using testing::message;
using Ids = std::vector<std::int64_t>;

tensor::Context host() {
  return tensor::Context(tensor::make_cpu_allocator());
}

// Row i holds 10·i, 10·i + 1; its label is 100·i.
std::unique_ptr<InMemorySource> numbered(std::int64_t samples,
                                         std::optional<std::uint64_t> seed = std::nullopt) {
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < samples; ++i) {
    inputs.push_back(static_cast<float>(10 * i));
    inputs.push_back(static_cast<float>(10 * i + 1));
    labels.push_back(100 * i);
  }
  const tensor::Context context = host();
  return std::make_unique<InMemorySource>(
      std::vector{Tensor::from<float>(context, {samples, 2}, inputs)},
      std::vector{Tensor::from<std::int64_t>(context, {samples}, labels)}, seed);
}

// All ids up to the end, asked for in pieces.
Ids drain(DataSource& source, std::int64_t rows) {
  Ids ids;
  while (const auto batch = source.next(rows)) {
    ids.insert(ids.end(), batch->ids.begin(), batch->ids.end());
  }
  return ids;
}

TEST(InMemorySource, GivesRowsInOrderAndFewerAtTheEnd) {
  const auto source = numbered(5);
  EXPECT_EQ(source->remaining(), 5);
  const auto first = source->next(3);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->rows(), 3);
  EXPECT_EQ(first->ids, (Ids{0, 1, 2}));
  ASSERT_EQ(first->inputs[0].shape(), (tensor::Shape{3, 2}));
  EXPECT_EQ(first->inputs[0].data<float>()[5], 21.0f);
  EXPECT_EQ(first->labels[0].shape(), (tensor::Shape{3}));
  EXPECT_EQ(first->labels[0].data<std::int64_t>()[2], 200);
  EXPECT_EQ(source->position(), 3);
  EXPECT_EQ(source->remaining(), 2);
  const auto rest = source->next(3);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->ids, (Ids{3, 4}));
  EXPECT_EQ(source->remaining(), 0);
  EXPECT_FALSE(source->next(3));
  EXPECT_EQ(source->position(), 5);
}

TEST(InMemorySource, SeekGoesToAnySampleAndTheEnd) {
  const auto source = numbered(5);
  source->seek(3);
  EXPECT_EQ(source->next(1)->ids, (Ids{3}));
  source->seek(0);
  EXPECT_EQ(source->next(1)->ids, (Ids{0}));
  source->seek(5);
  EXPECT_FALSE(source->next(1));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { source->seek(6); }),
            "[data] expected a position in [0, 5], got 6");
  EXPECT_THROW(source->seek(-1), tensor::InvalidArgument);
  EXPECT_THROW(source->next(0), tensor::InvalidArgument);
}

TEST(InMemorySource, MicroBatchesAreCopies) {
  const auto source = numbered(2);
  source->next(1)->inputs[0].data<float>()[0] = -1.0f;
  source->seek(0);
  EXPECT_EQ(source->next(1)->inputs[0].data<float>()[0], 0.0f);
}

TEST(InMemorySource, ShuffledCopiesAgreeAndRowsStayTogether) {
  const auto a = numbered(20, 5);
  const auto b = numbered(20, 5);
  const auto batch = a->next(20);
  EXPECT_NE(batch->ids, drain(*numbered(20), 20));
  for (std::size_t row = 0; row < 20; ++row) {
    EXPECT_EQ(batch->inputs[0].data<float>()[2 * row], 10.0f * static_cast<float>(batch->ids[row]));
    EXPECT_EQ(batch->labels[0].data<std::int64_t>()[row], 100 * batch->ids[row]);
  }
  EXPECT_EQ(drain(*b, 3), batch->ids);
}

TEST(InMemorySource, RefusesTensorsThatDisagreeInRows) {
  const tensor::Context context = host();
  const Tensor three = Tensor::zeros(context, {3, 2}, tensor::DType::kF32);
  const Tensor four = Tensor::zeros(context, {4}, tensor::DType::kF32);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { InMemorySource({three}, {four}); }),
            "[data] expected host tensors with one row per sample, 3 rows as the first has, got "
            "f32 [4] on cpu");
  const Tensor scalar = Tensor::zeros(context, {}, tensor::DType::kF32);
  EXPECT_THROW(InMemorySource({scalar}, {}), tensor::InvalidArgument);
  EXPECT_THROW(InMemorySource({}, {three}), tensor::InvalidArgument);
  EXPECT_THROW(InMemorySource({Tensor()}, {}), tensor::InvalidArgument);
}

TEST(InMemorySource, MayBeEmptyAndMayHaveNoLabels) {
  InMemorySource source({Tensor::zeros(host(), {0, 2}, tensor::DType::kF32)}, {});
  EXPECT_EQ(source.remaining(), 0);
  EXPECT_FALSE(source.next(1));
}

std::vector<std::uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string text_of(const Tensor& tokens) {
  std::string text;
  for (const std::int32_t token : tokens.span<std::int32_t>()) {
    text += static_cast<char>(token);
  }
  return text;
}

TEST(TextSource, PredictsEveryByteButTheFirstOnce) {
  TextSource source(bytes("abcdefghijk"), 3);  // (11 - 1) / 3 = 3 windows; "k" is left over
  EXPECT_EQ(source.remaining(), 3);
  const auto batch = source.next(2);
  EXPECT_EQ(batch->inputs[0].shape(), (tensor::Shape{2, 3}));
  EXPECT_EQ(text_of(batch->inputs[0]), "abcdef");
  EXPECT_EQ(text_of(batch->labels[0]), "bcdefg");
  const auto last = source.next(2);
  EXPECT_EQ(last->ids, (Ids{2}));
  EXPECT_EQ(text_of(last->inputs[0]), "ghi");
  EXPECT_EQ(text_of(last->labels[0]), "hij");
  EXPECT_FALSE(source.next(1));
}

TEST(TextSource, TokensAreBytesAbove127Too) {
  TextSource source({200, 255, 0}, 2);
  const auto batch = source.next(1);
  EXPECT_EQ(batch->inputs[0].data<std::int32_t>()[1], 255);
  EXPECT_EQ(batch->labels[0].data<std::int32_t>()[1], 0);
}

TEST(TextSource, NamesWhatIsTooShort) {
  EXPECT_EQ(message<tensor::InvalidArgument>([] { TextSource(bytes("abc"), 3); }),
            "[text] expected at least 4 bytes, one window of the context and the byte after it, "
            "got 3; give a longer text or a shorter context");
  EXPECT_THROW(TextSource(bytes("abc"), 0), tensor::InvalidArgument);
  EXPECT_EQ(TextSource(bytes("abcd"), 3).remaining(), 1);
}

TEST(ReadFile, ReadsBytesAndNamesThePathThatItCannot) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("penstock_text_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto path = folder / "text";
  const std::string content("a\r\n\0\xff", 5);
  std::ofstream(path, std::ios::binary) << content;
  EXPECT_EQ(read_file(path), bytes(content));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { read_file(folder); }),
            "[text] cannot read " + folder.string() + ": it is a directory");
  const auto missing = folder / "missing";
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { read_file(missing); }),
            "[text] cannot read " + missing.string() + ": no such file");
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { read_file(pipe); }),
            "[text] cannot read " + pipe.string() + ": it is not a regular file");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { RangedFile{pipe}; }),
            "[data] cannot read " + pipe.string() + ": it is not a regular file");
  std::filesystem::remove_all(folder);
}

TEST(RepeatingSource, GoesOnWithANewOrderAndNewIds) {
  RepeatingSource source(numbered(6, 3));
  EXPECT_EQ(source.remaining(), std::nullopt);
  std::vector<Ids> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    Ids ids = source.next(6)->ids;
    for (std::int64_t& id : ids) id -= 6 * epoch;
    epochs.push_back(ids);
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, (Ids{0, 1, 2, 3, 4, 5}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_EQ(source.position(), 18);
}

TEST(RepeatingSource, AMicroBatchReachesOverTheEnd) {
  RepeatingSource source(numbered(5));
  source.next(3);
  const auto batch = source.next(9);  // 2 of epoch 0, all of epoch 1, 2 of epoch 2
  EXPECT_EQ(batch->ids, (Ids{3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(batch->inputs[0].shape(), (tensor::Shape{9, 2}));
  EXPECT_EQ(batch->inputs[0].data<float>()[2 * 2], 0.0f);
  EXPECT_EQ(batch->labels[0].data<std::int64_t>()[6], 400);
  EXPECT_EQ(batch->labels[0].data<std::int64_t>()[8], 100);
  EXPECT_EQ(source.position(), 12);
}

TEST(RepeatingSource, SeekOverEpochsEqualsHavingRead) {
  RepeatingSource read(numbered(7, 11));
  Ids all;
  for (int i = 0; i < 10; ++i) {
    const auto batch = read.next(3);
    all.insert(all.end(), batch->ids.begin(), batch->ids.end());
  }
  for (const std::int64_t position : {0, 6, 7, 8, 20, 21, 26, 3}) {
    RepeatingSource sought(numbered(7, 11));
    sought.seek(20);  // from another epoch
    sought.seek(position);
    EXPECT_EQ(sought.position(), position);
    const Ids expected(all.begin() + position, all.begin() + position + 4);
    EXPECT_EQ(sought.next(4)->ids, expected) << position;
  }
  EXPECT_THROW(read.seek(-1), tensor::InvalidArgument);
}

TEST(RepeatingSource, RefusesAnEmptyOrEndlessSourceAtOnce) {
  EXPECT_EQ(message<tensor::InvalidArgument>([] { RepeatingSource source(numbered(0)); }),
            "[data] expected a source with samples to repeat, got an empty one");
  EXPECT_THROW(RepeatingSource(std::make_unique<RepeatingSource>(numbered(2))),
               tensor::InvalidArgument);
}

// A user's own source, with one order for all epochs and rows of other lengths in each call.
class Growing final : public DataSource {
 public:
  std::optional<MicroBatch> next(std::int64_t rows) override {
    rows = std::min(rows, 4 - position_);
    if (rows == 0) return std::nullopt;
    MicroBatch batch;
    batch.inputs.push_back(Tensor::zeros(host(), {rows, 1 + position_}, tensor::DType::kF32));
    batch.ids.resize(static_cast<std::size_t>(rows));
    std::iota(batch.ids.begin(), batch.ids.end(), position_ + id_offset);
    position_ += rows;
    return batch;
  }
  std::int64_t position() const override { return position_; }
  void seek(std::int64_t position) override { position_ = position; }
  std::optional<std::int64_t> remaining() const override { return 4 - position_; }

  std::int64_t id_offset = 0;

 private:
  std::int64_t position_ = 0;
};

TEST(RepeatingSource, RepeatsASourceThatKnowsNoEpochs) {
  RepeatingSource source(std::make_unique<Growing>());
  EXPECT_EQ(source.next(4)->ids, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(source.next(2)->ids, (Ids{4, 5}));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { source.next(4); }),
            "[data] a micro batch reaches over the end of an epoch and cannot join f32 [2, 3] on "
            "cpu with f32 [2, 1] on cpu");
}

TEST(RepeatingSource, RefusesIdsThatWouldMeetThoseOfAnotherEpoch) {
  auto inner = std::make_unique<Growing>();
  inner->id_offset = 1;
  RepeatingSource source(std::move(inner));
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { source.next(4); }),
            "[data] expected sample ids in [0, 4) from a source that is repeated, got 4");
}

}  // namespace
}  // namespace penstock::model
