#include "model/data/text_source.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

#include "tensor/error.h"

namespace penstock::model {

namespace {

std::int64_t count_windows(std::int64_t bytes, std::int64_t context) {
  if (context < 1) {
    throw tensor::InvalidArgument("[text] expected a context of at least one token, got " +
                                  std::to_string(context));
  }
  if (bytes < context + 1) {
    throw tensor::InvalidArgument("[text] expected at least " + std::to_string(context + 1) +
                                  " bytes, one window of the context and the byte after it, got " +
                                  std::to_string(bytes) +
                                  "; give a longer text or a shorter context");
  }
  return (bytes - 1) / context;
}

[[noreturn]] void throw_unreadable(const std::filesystem::path& path, const std::string& reason) {
  throw tensor::InvalidArgument("[text] cannot read " + path.string() + ": " + reason);
}

}  // namespace

std::vector<std::uint8_t> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) throw_unreadable(path, "no such file");
  if (kind == std::filesystem::file_type::directory) throw_unreadable(path, "it is a directory");
  if (kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::unknown) {
    throw_unreadable(path, "it is not a regular file");  // a pipe would be waited for
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_unreadable(path, "it cannot be opened; check its permissions");
  std::vector<std::uint8_t> bytes;
  std::vector<char> piece(std::size_t{1} << 20);
  while (file.read(piece.data(), std::ssize(piece)) || file.gcount() > 0) {
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + file.gcount());
  }
  if (file.bad())
    throw_unreadable(path, "a read failed after " + std::to_string(bytes.size()) + " bytes");
  return bytes;
}

TextSource::TextSource(std::vector<std::uint8_t> text, std::int64_t context,
                       std::optional<std::uint64_t> shuffle_seed)
    : IndexedSource(count_windows(std::ssize(text), context), shuffle_seed),
      text_(std::move(text)),
      context_(context) {}

MicroBatch TextSource::fetch(std::span<const std::int64_t> samples) {
  const tensor::Shape shape{std::ssize(samples), context_};
  const auto new_tokens = [&] {
    return tensor::Tensor::empty(memory(), shape, tensor::DType::kI32);
  };
  MicroBatch batch{{new_tokens()}, {new_tokens()}, {}};
  std::int32_t* inputs = batch.inputs[0].data<std::int32_t>();
  std::int32_t* labels = batch.labels[0].data<std::int32_t>();
  for (const std::int64_t sample : samples) {
    const std::uint8_t* window = text_.data() + sample * context_;
    inputs = std::copy_n(window, context_, inputs);
    labels = std::copy_n(window + 1, context_, labels);
  }
  return batch;
}

}  // namespace penstock::model
