#include "model/data/image_source.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "tensor/error.h"

namespace penstock::model {

namespace {

constexpr std::int64_t kCifarRecord = 1 + 3 * 32 * 32;
constexpr std::uint32_t kIdxImages = 0x00000803;  // bytes, in 3 dimensions
constexpr std::uint32_t kIdxLabels = 0x00000801;  // bytes, in 1 dimension

[[noreturn]] void fail(const RangedFile& file, const std::string& what) {
  throw tensor::InvalidArgument("[images] " + file.path().string() + " " + what);
}

std::string hex(std::uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", number);
  return text;
}

// The sizes in an idx file's header, whose numbers have their highest byte first.
std::vector<std::int64_t> read_idx_header(const RangedFile& file, std::uint32_t magic,
                                          std::size_t dimensions) {
  refuse_gzip(file);
  std::vector<std::uint8_t> bytes(4 * (1 + dimensions));
  if (file.size() < std::ssize(bytes)) {
    fail(file, "has " + std::to_string(file.size()) + " bytes; expected an idx header of " +
                   std::to_string(bytes.size()));
  }
  file.read(0, bytes);
  const auto number = [&](std::size_t i) {
    std::uint32_t value = 0;
    for (std::size_t k = 0; k < 4; ++k) value = value << 8 | bytes[4 * i + k];
    return value;
  };
  if (number(0) != magic) {
    fail(file, "begins with " + hex(number(0)) + "; expected " + hex(magic) + ", idx " +
                   (magic == kIdxImages ? "images" : "labels"));
  }
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 1; i <= dimensions; ++i) sizes.push_back(number(i));
  return sizes;
}

// Of `count` records of `record` bytes each, whose product may be larger than an integer.
void check_payload(const RangedFile& file, std::int64_t header, std::int64_t count,
                   std::uint64_t record, const std::string& meaning) {
  const auto payload = static_cast<std::uint64_t>(file.size() - header);
  const auto records = static_cast<std::uint64_t>(count);
  if (count > 0 && record > 0 && payload % records == 0 && payload / records == record) return;
  fail(file, "has " + std::to_string(payload) + " bytes after its header, which says " + meaning +
                 "; expected at least one and as many bytes as they are; it is cut off or damaged");
}

}  // namespace

std::unique_ptr<ImageSource> ImageSource::cifar10(const std::vector<std::filesystem::path>& files,
                                                  const ImageOptions& options) {
  std::vector<Part> parts;
  std::int64_t samples = 0;
  for (const std::filesystem::path& path : files) {
    RangedFile file(path);
    refuse_gzip(file);
    if (file.size() == 0 || file.size() % kCifarRecord != 0) {
      fail(file, "has " + std::to_string(file.size()) + " bytes; expected a multiple of " +
                     std::to_string(kCifarRecord) + ", the records of CIFAR-10's binary version");
    }
    samples += file.size() / kCifarRecord;
    parts.push_back(
        {{std::move(file), 1, kCifarRecord}, {RangedFile(path), 0, kCifarRecord}, samples});
  }
  if (parts.empty()) throw tensor::InvalidArgument("[images] expected at least one file");
  return std::unique_ptr<ImageSource>(new ImageSource(std::move(parts), {3, 32, 32, 10}, options));
}

std::unique_ptr<ImageSource> ImageSource::mnist(const std::filesystem::path& images,
                                                const std::filesystem::path& labels,
                                                const ImageOptions& options, std::int64_t classes) {
  RangedFile pixels(images);
  const std::vector<std::int64_t> sizes = read_idx_header(pixels, kIdxImages, 3);
  const std::int64_t count = sizes[0], height = sizes[1], width = sizes[2];
  check_payload(
      pixels, 16, count, static_cast<std::uint64_t>(height) * static_cast<std::uint64_t>(width),
      std::to_string(count) + " images of " + std::to_string(height) + "×" + std::to_string(width));
  RangedFile kinds(labels);
  const std::int64_t label_count = read_idx_header(kinds, kIdxLabels, 1)[0];
  check_payload(kinds, 8, label_count, 1, std::to_string(label_count) + " labels");
  if (label_count != count) {
    fail(kinds, "has " + std::to_string(label_count) + " labels; expected " +
                    std::to_string(count) + ", one for each image of " + images.string());
  }
  std::vector<Part> parts;
  parts.push_back({{std::move(pixels), 16, height * width}, {std::move(kinds), 8, 1}, count});
  return std::unique_ptr<ImageSource>(
      new ImageSource(std::move(parts), {1, height, width, classes}, options));
}

ImageSource::ImageSource(std::vector<Part> parts, const Format& format, const ImageOptions& options)
    : IndexedSource(parts.back().end, options.shuffle_seed),
      parts_(std::move(parts)),
      format_(format),
      options_(options),
      bytes_(static_cast<std::size_t>(format.channels * format.height * format.width)) {
  if (!(options.deviation > 0) || options.padding < 0 || options.copies < 1) {
    throw tensor::InvalidArgument(
        "[images] expected a deviation above 0, a padding of at least 0 and at least one copy of "
        "each channel, got " +
        std::to_string(options.deviation) + ", " + std::to_string(options.padding) + " and " +
        std::to_string(options.copies));
  }
  for (std::size_t pixel = 0; pixel < scaled_.size(); ++pixel) {
    scaled_[pixel] =
        static_cast<float>((static_cast<double>(pixel) / 255.0 - options.mean) / options.deviation);
  }
}

MicroBatch ImageSource::fetch(std::span<const std::int64_t> samples) {
  const std::int64_t rows = std::ssize(samples);
  const tensor::Shape shape{rows, format_.channels * options_.copies,
                            format_.height + 2 * options_.padding,
                            format_.width + 2 * options_.padding};
  MicroBatch batch{{tensor::Tensor::empty(memory(), shape, tensor::DType::kF32)},
                   {tensor::Tensor::empty(memory(), {rows}, tensor::DType::kI64)},
                   {}};
  float* image = batch.inputs[0].data<float>();
  std::int64_t* label = batch.labels[0].data<std::int64_t>();
  for (const std::int64_t sample : samples) {
    const auto part = std::ranges::upper_bound(parts_, sample, {}, &Part::end);
    const std::int64_t record = sample - (part == parts_.begin() ? 0 : std::prev(part)->end);
    read_pixels(*part, record, image);
    image += shape.numel() / rows;
    *label++ = read_label(*part, record);
  }
  return batch;
}

void ImageSource::read_pixels(const Part& part, std::int64_t record, float* image) {
  part.pixels.file.read(part.pixels.begin + record * part.pixels.stride, bytes_);
  const std::int64_t border = options_.padding;
  const std::int64_t width = format_.width + 2 * border;
  const std::int64_t plane = width * (format_.height + 2 * border);
  const std::uint8_t* from = bytes_.data();
  for (std::int64_t channel = 0; channel < format_.channels; ++channel) {
    const float* const first = image;
    std::fill_n(image, plane, scaled_[0]);
    for (std::int64_t row = 0; row < format_.height; ++row) {
      float* to = image + (row + border) * width + border;
      for (std::int64_t column = 0; column < format_.width; ++column) *to++ = scaled_[*from++];
    }
    image += plane;
    for (std::int64_t i = 1; i < options_.copies; ++i) image = std::copy_n(first, plane, image);
  }
}

std::int64_t ImageSource::read_label(const Part& part, std::int64_t record) const {
  std::uint8_t label = 0;
  part.labels.file.read(part.labels.begin + record * part.labels.stride, {&label, 1});
  if (label < format_.classes) return label;
  fail(part.labels.file, "has the label " + std::to_string(label) + " for image " +
                             std::to_string(record) + "; expected labels below " +
                             std::to_string(format_.classes));
}

}  // namespace penstock::model
