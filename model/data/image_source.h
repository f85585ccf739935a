// ImageSource: labelled images from CIFAR-10's and MNIST's files.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/data/indexed_source.h"
#include "model/data/ranged_file.h"

namespace penstock::model {

struct ImageOptions {
  // A pixel p of 0 … 255 becomes (p ÷ 255 − mean) ÷ deviation: by default in [−1, 1].
  double mean = 0.5;
  double deviation = 0.5;
  std::int64_t padding = 0;  // black pixels added on each side
  std::int64_t copies = 1;   // of each channel: 3 gives a grey image three equal ones
  std::optional<std::uint64_t> shuffle_seed = std::nullopt;
};

// Inputs f32 [rows, channels, height, width], labels i64 [rows]. Files are read by ranges, as
// images are asked for; a label that is out of range is an error of the call that would give it.
// Errors are InvalidArgument; they name the file, what is wrong with it and what was expected.
class ImageSource final : public IndexedSource {
 public:
  // CIFAR-10's binary files (data_batch_1.bin, …), one after the other. A record is a label byte,
  // below 10, and 32 × 32 pixels of red, green and blue.
  static std::unique_ptr<ImageSource> cifar10(const std::vector<std::filesystem::path>& files,
                                              const ImageOptions& options = {});
  // MNIST's pair of idx files (train-images-idx3-ubyte, train-labels-idx1-ubyte) and data sets of
  // the same form; labels are below `classes`.
  static std::unique_ptr<ImageSource> mnist(const std::filesystem::path& images,
                                            const std::filesystem::path& labels,
                                            const ImageOptions& options = {},
                                            std::int64_t classes = 10);

 private:
  // Where the bytes of equally spaced records lie in a file.
  struct Records {
    RangedFile file;
    std::int64_t begin, stride;
  };
  struct Part {
    Records pixels;
    Records labels;
    std::int64_t end;  // the number of its last sample + 1
  };
  struct Format {
    std::int64_t channels, height, width, classes;
  };

  ImageSource(std::vector<Part> parts, const Format& format, const ImageOptions& options);
  MicroBatch fetch(std::span<const std::int64_t> samples) override;
  void read_pixels(const Part& part, std::int64_t record, float* image);
  std::int64_t read_label(const Part& part, std::int64_t record) const;

  std::vector<Part> parts_;
  Format format_;
  ImageOptions options_;
  std::array<float, 256> scaled_{};  // by pixel
  std::vector<std::uint8_t> bytes_;  // of one image
};

}  // namespace penstock::model
