#include "model/data/image_source.h"

#include <filesystem>
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

namespace fs = std::filesystem;
using testing::Bytes;
using testing::message;
using testing::put_big;
using testing::write_file;
using Labels = std::vector<std::int64_t>;

std::uint8_t pixel(int image, int channel, int row, int column) {
  return static_cast<std::uint8_t>(17 * image + 71 * channel + 5 * row + column);
}
float scaled(std::uint8_t byte) {
  return static_cast<float>((byte / 255.0 - 0.5) / 0.5);
}

// Records whose labels are first, first + 1, …
Bytes cifar(int images, int first = 0) {
  Bytes bytes;
  for (int image = first; image < first + images; ++image) {
    bytes.push_back(static_cast<std::uint8_t>(image));
    for (int channel = 0; channel < 3; ++channel) {
      for (int place = 0; place < 32 * 32; ++place) {
        bytes.push_back(pixel(image, channel, place / 32, place % 32));
      }
    }
  }
  return bytes;
}

Bytes idx_images(std::uint32_t magic, std::uint32_t count, std::uint32_t height,
                 std::uint32_t width) {
  Bytes bytes;
  for (const std::uint32_t number : {magic, count, height, width}) put_big(bytes, number, 4);
  return bytes;
}
// Three images of 4 × 5.
Bytes three_images() {
  Bytes bytes = idx_images(0x803, 3, 4, 5);
  for (int image = 0; image < 3; ++image) {
    for (int place = 0; place < 20; ++place) bytes.push_back(pixel(image, 0, place / 5, place % 5));
  }
  return bytes;
}
Bytes idx_labels(const Bytes& labels, std::uint32_t magic = 0x801) {
  Bytes bytes;
  put_big(bytes, magic, 4);
  put_big(bytes, labels.size(), 4);
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

class ImageFiles : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const Bytes& bytes) const {
    return write_file(folder_ / name, bytes);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // Of a CIFAR file, after the words that name it.
  std::string cifar_refusal(const Bytes& bytes) const {
    const fs::path made = file("c.bin", bytes);
    return message<tensor::InvalidArgument>([&] { ImageSource::cifar10({made}); });
  }
  std::string mnist_refusal(const Bytes& images, const Bytes& labels) const {
    const fs::path pixels = file("images", images), kinds = file("labels", labels);
    return message<tensor::InvalidArgument>([&] { ImageSource::mnist(pixels, kinds); });
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(ImageFiles, OfCifarGiveTheirRecordsInOrder) {
  const auto source = ImageSource::cifar10({file("a.bin", cifar(3)), file("b.bin", cifar(2, 3))});
  EXPECT_EQ(source->remaining(), 5);
  source->seek(1);
  const auto batch = source->next(9);
  ASSERT_EQ(batch->inputs[0].shape(), (tensor::Shape{4, 3, 32, 32}));
  EXPECT_EQ(testing::values<std::int64_t>(batch->labels[0]), (Labels{1, 2, 3, 4}));
  const float* got = batch->inputs[0].data<float>();
  for (int image = 1; image < 5; ++image) {
    for (int channel = 0; channel < 3; ++channel) {
      for (int place = 0; place < 32 * 32; ++place) {
        ASSERT_EQ(*got++, scaled(pixel(image, channel, place / 32, place % 32)));
      }
    }
  }
  EXPECT_FALSE(source->next(1));
}

TEST_F(ImageFiles, AreShuffledAndRepeatedAsOtherSamples) {
  RepeatingSource source(ImageSource::cifar10({file("a.bin", cifar(6)), file("b.bin", cifar(4, 6))},
                                              {.shuffle_seed = 3}));
  Labels orders[2];
  for (Labels& order : orders) {
    const auto batch = source.next(10);
    order = testing::values<std::int64_t>(batch->labels[0]);
    for (std::size_t row = 0; row < 10; ++row) {
      EXPECT_EQ(batch->ids[row] % 10, order[row]);
      const auto image = static_cast<int>(order[row]);
      EXPECT_EQ(batch->inputs[0].data<float>()[3072 * row], scaled(pixel(image, 0, 0, 0)));
    }
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST_F(ImageFiles, OfMnistGiveGreyImages) {
  const auto source =
      ImageSource::mnist(file("images", three_images()), file("labels", idx_labels({7, 0, 9})));
  const auto batch = source->next(3);
  ASSERT_EQ(batch->inputs[0].shape(), (tensor::Shape{3, 1, 4, 5}));
  EXPECT_EQ(testing::values<std::int64_t>(batch->labels[0]), (Labels{7, 0, 9}));
  const float* got = batch->inputs[0].data<float>();
  for (int image = 0; image < 3; ++image) {
    for (int place = 0; place < 20; ++place) {
      ASSERT_EQ(*got++, scaled(pixel(image, 0, place / 5, place % 5)));
    }
  }
}

TEST_F(ImageFiles, GrowABorderAndChannels) {
  const auto source =
      ImageSource::mnist(file("images", three_images()), file("labels", idx_labels({1, 2, 3})),
                         {.mean = 0.0, .deviation = 1.0, .padding = 2, .copies = 3});
  source->seek(1);
  const auto batch = source->next(1);
  ASSERT_EQ(batch->inputs[0].shape(), (tensor::Shape{1, 3, 8, 9}));
  const float* got = batch->inputs[0].data<float>();
  for (int channel = 0; channel < 3; ++channel) {
    for (int row = -2; row < 6; ++row) {
      for (int column = -2; column < 7; ++column) {
        const bool inside = row >= 0 && row < 4 && column >= 0 && column < 5;
        const double byte = inside ? pixel(1, 0, row, column) : 0;
        ASSERT_EQ(*got++, static_cast<float>(byte / 255.0));
      }
    }
  }
  const fs::path images = folder_ / "images", labels = folder_ / "labels";
  EXPECT_THROW(ImageSource::mnist(images, labels, {.deviation = 0}), tensor::InvalidArgument);
  EXPECT_THROW(ImageSource::mnist(images, labels, {.padding = -1}), tensor::InvalidArgument);
  EXPECT_THROW(ImageSource::mnist(images, labels, {.copies = 0}), tensor::InvalidArgument);
}

TEST_F(ImageFiles, OfCifarAreRefusedWhenTheyAreNotWholeRecords) {
  const std::string end = "; expected a multiple of 3073, the records of CIFAR-10's binary version";
  EXPECT_EQ(cifar_refusal({}), "[images] " + path("c.bin") + " has 0 bytes" + end);
  Bytes cut = cifar(2);
  cut.pop_back();
  EXPECT_EQ(cifar_refusal(cut), "[images] " + path("c.bin") + " has 6145 bytes" + end);
  EXPECT_EQ(cifar_refusal({0x1f, 0x8b, 8, 0}),
            "[data] " + path("c.bin") + " is compressed; unpack it first, with gunzip or tar");
  EXPECT_EQ(message<tensor::InvalidArgument>([] { ImageSource::cifar10({}); }),
            "[images] expected at least one file");
  EXPECT_EQ(message<tensor::InvalidArgument>([&] { ImageSource::cifar10({folder_ / "none"}); }),
            "[data] cannot read " + path("none") + ": No such file or directory");
}

TEST_F(ImageFiles, OfMnistAreRefusedWhenTheirHeadersAreWrong) {
  const Bytes images = three_images(), labels = idx_labels({1, 2, 3});
  EXPECT_EQ(mnist_refusal(labels, labels),
            "[images] " + path("images") + " has 11 bytes; expected an idx header of 16");
  EXPECT_EQ(mnist_refusal(images, images), "[images] " + path("labels") +
                                               " begins with 0x00000803; expected 0x00000801, idx "
                                               "labels");
  EXPECT_EQ(mnist_refusal(idx_images(0x0d03, 1, 2, 2), labels),  // idx of floats
            "[images] " + path("images") +
                " begins with 0x00000d03; expected 0x00000803, idx "
                "images");
  EXPECT_EQ(mnist_refusal({0x1f, 0x8b, 8, 0}, labels),
            "[data] " + path("images") + " is compressed; unpack it first, with gunzip or tar");
  EXPECT_EQ(mnist_refusal(images, idx_labels({1, 2})),
            "[images] " + path("labels") + " has 2 labels; expected 3, one for each image of " +
                path("images"));
}

TEST_F(ImageFiles, OfMnistAreRefusedWhenTheirSizesAreNotTheirHeaders) {
  const Bytes labels = idx_labels({1, 2, 3});
  const std::string end =
      "; expected at least one and as many bytes as they are; it is cut off or damaged";
  const auto refused = [&](std::size_t bytes, const std::string& what) {
    return "[images] " + path("images") + " has " + std::to_string(bytes) +
           " bytes after its header, which says " + what + end;
  };
  Bytes cut = three_images();
  cut.pop_back();
  EXPECT_EQ(mnist_refusal(cut, labels), refused(59, "3 images of 4×5"));
  EXPECT_EQ(mnist_refusal(idx_images(0x803, 0, 4, 5), labels), refused(0, "0 images of 4×5"));
  EXPECT_EQ(mnist_refusal(idx_images(0x803, 3, 0, 5), labels), refused(0, "3 images of 0×5"));
  // Products that are 0 in 64 bits, or in 32.
  EXPECT_EQ(mnist_refusal(idx_images(0x803, 0x80000000, 0x80000000, 4), labels),
            refused(0, "2147483648 images of 2147483648×4"));
  EXPECT_EQ(mnist_refusal(idx_images(0x803, 1, 0x10000, 0x10000), labels),
            refused(0, "1 images of 65536×65536"));
  EXPECT_EQ(mnist_refusal(idx_images(0x803, 0xffffffff, 0xffffffff, 0xffffffff), labels),
            refused(0, "4294967295 images of 4294967295×4294967295"));
  Bytes more = idx_labels({1, 2, 3});
  more.push_back(4);
  EXPECT_EQ(
      mnist_refusal(three_images(), more),
      "[images] " + path("labels") + " has 4 bytes after its header, which says 3 labels" + end);
}

TEST_F(ImageFiles, NameALabelThatIsOutOfRange) {
  Bytes bytes = cifar(3);
  bytes[3073] = 10;
  const auto source = ImageSource::cifar10({file("a.bin", cifar(2)), file("b.bin", bytes)});
  EXPECT_TRUE(source->next(3));
  EXPECT_EQ(
      message<tensor::InvalidArgument>([&] { source->next(1); }),
      "[images] " + path("b.bin") + " has the label 10 for image 1; expected labels below 10");
  EXPECT_EQ(source->position(), 3);  // the source is usable
  source->seek(4);
  EXPECT_EQ(testing::values<std::int64_t>(source->next(1)->labels[0]), (Labels{2}));

  const fs::path images = file("images", three_images());
  const fs::path labels = file("labels", idx_labels({46, 0, 47}));
  const auto letters = ImageSource::mnist(images, labels, {}, /*classes=*/47);
  EXPECT_TRUE(letters->next(2));
  EXPECT_EQ(
      message<tensor::InvalidArgument>([&] { letters->next(1); }),
      "[images] " + path("labels") + " has the label 47 for image 2; expected labels below 47");
}

}  // namespace
}  // namespace penstock::model
