#include "tools/train/data_choice.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/data/image_source.h"
#include "model/data/text_source.h"
#include "model/data/token_source.h"
#include "tensor/error.h"
#include "tools/train/usage_error.h"

namespace penstock::tools {

namespace {

namespace fs = std::filesystem;

struct FormatName {
  std::string_view word;
  DataFormat format;
};
constexpr FormatName kFormats[] = {
    {"auto", DataFormat::kAuto},       {"text", DataFormat::kText},
    {"nanogpt", DataFormat::kNanoGpt}, {"llm.c", DataFormat::kLlmC},
    {"cifar10", DataFormat::kCifar10}, {"mnist", DataFormat::kMnist}};

std::string word_of(DataFormat format) {
  return std::string(std::ranges::find(kFormats, format, &FormatName::format)->word);
}

[[noreturn]] void fail_format(DataFormat format, const std::string& expected) {
  throw tensor::InvalidArgument("[train] --data-format is " + word_of(format) + "; expected " +
                                expected);
}

const std::string& only_file(const DataChoice& data, const std::string& what) {
  if (data.files.size() == 1) return data.files[0];
  throw tensor::InvalidArgument("[train] expected one file of " + what + ", got " +
                                std::to_string(data.files.size()));
}

bool replace(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.rfind(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

// The samples of a language model.
struct TokenShape {
  std::int64_t context, vocabulary;
};

// A smaller vocabulary than that of all bytes will do for plain letters.
std::vector<std::uint8_t> read_bytes(const std::string& file, std::int64_t vocabulary) {
  std::vector<std::uint8_t> bytes = model::read_file(file);
  const auto beyond = std::ranges::find_if(bytes, [=](auto byte) { return byte >= vocabulary; });
  if (beyond == bytes.end()) return bytes;
  throw tensor::InvalidArgument("[train] " + file + " has the byte " + std::to_string(*beyond) +
                                " at " + std::to_string(beyond - bytes.begin()) +
                                "; expected bytes in [0, " + std::to_string(vocabulary) +
                                "); give the model vocabulary=256");
}

std::unique_ptr<model::DataSource> open_tokens(const DataChoice& data, const TokenShape& config,
                                               std::optional<std::uint64_t> shuffle_seed) {
  const auto ends_with_bin = [](const fs::path& file) { return file.extension() == ".bin"; };
  model::TokenFormat format = model::TokenFormat::kDetect;
  switch (data.format) {
    case DataFormat::kNanoGpt:
      format = model::TokenFormat::kNanoGpt;
      break;
    case DataFormat::kLlmC:
      format = model::TokenFormat::kLlmC;
      break;
    case DataFormat::kAuto:
      if (std::ranges::any_of(data.files, ends_with_bin)) break;
      [[fallthrough]];
    case DataFormat::kText:
      return std::make_unique<model::TextSource>(
          read_bytes(only_file(data, "text"), config.vocabulary), config.context, shuffle_seed);
    default:
      fail_format(data.format, "auto, text, nanogpt or llm.c, since the model takes tokens");
  }
  std::vector<model::TokenFile> files;
  for (const std::string& file : data.files) files.emplace_back(file, format);
  return std::make_unique<model::TokenSource>(std::move(files), config.context, config.vocabulary,
                                              shuffle_seed);
}

// "train-images-idx3-ubyte" is told by its name, so that a compressed one is named in the error.
bool is_idx(const std::string& file) {
  return fs::path(file).filename().string().find("idx3") != std::string::npos;
}

std::unique_ptr<model::DataSource> open_mnist(const DataChoice& data,
                                              const model::AlexNetConfig& config,
                                              model::ImageOptions options) {
  const fs::path images = only_file(data, "MNIST's images");
  std::string labels = images.filename().string();
  if (!replace(labels, "images", "labels") || !replace(labels, "idx3", "idx1")) {
    throw tensor::InvalidArgument(
        "[train] expected a file of MNIST's images such as "
        "train-images-idx3-ubyte, with train-labels-idx1-ubyte beside "
        "it, got " +
        images.string());
  }
  options.padding = 2;  // 28 × 28 to AlexNet's 32 × 32
  options.copies = 3;
  return model::ImageSource::mnist(images, images.parent_path() / labels, options,
                                   config.num_classes);
}

std::unique_ptr<model::DataSource> open_images(const DataChoice& data,
                                               const model::AlexNetConfig& config,
                                               std::optional<std::uint64_t> shuffle_seed) {
  const model::ImageOptions options{.shuffle_seed = shuffle_seed};
  switch (data.format) {
    case DataFormat::kMnist:
      return open_mnist(data, config, options);
    case DataFormat::kAuto:
      if (is_idx(data.files.at(0))) return open_mnist(data, config, options);
      [[fallthrough]];
    case DataFormat::kCifar10:
      return model::ImageSource::cifar10({data.files.begin(), data.files.end()}, options);
    default:
      fail_format(data.format, "auto, cifar10 or mnist, since AlexNet takes images");
  }
}

}  // namespace

DataFormat data_format(const std::string& word) {
  const auto* found = std::ranges::find(kFormats, word, &FormatName::word);
  if (found != std::end(kFormats)) return found->format;
  throw UsageError(
      "--data-format expects auto, text, nanogpt, llm.c, cifar10 or mnist, "
      "got \"" +
      word + "\"");
}

std::unique_ptr<model::DataSource> open_data(const DataChoice& data, const ModelConfig& config,
                                             std::optional<std::uint64_t> shuffle_seed) {
  if (const auto* gpt2 = std::get_if<model::Gpt2Config>(&config)) {
    return open_tokens(data, {gpt2->context, gpt2->vocabulary}, shuffle_seed);
  }
  if (const auto* llama = std::get_if<model::LlamaConfig>(&config)) {
    return open_tokens(data, {llama->context, llama->vocabulary}, shuffle_seed);
  }
  return open_images(data, std::get<model::AlexNetConfig>(config), shuffle_seed);
}

}  // namespace penstock::tools
