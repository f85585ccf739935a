#include "model/data/token_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tensor/error.h"

namespace penstock::model {

namespace {

std::int64_t windows_of(const TokenFile& file, std::int64_t context) {
  return (file.size() - 1) / context;
}

std::int64_t count_windows(std::span<const TokenFile> files, std::int64_t context) {
  if (context < 1) {
    throw tensor::InvalidArgument("[tokens] expected a context of at least one token, got " +
                                  std::to_string(context));
  }
  if (files.empty()) throw tensor::InvalidArgument("[tokens] expected at least one file");
  std::int64_t windows = 0;
  for (const TokenFile& file : files) {
    if (file.size() < context + 1) {
      throw tensor::InvalidArgument(
          "[tokens] " + file.path().string() + " has " + std::to_string(file.size()) +
          " tokens; expected at least " + std::to_string(context + 1) +
          ", one window of the context and the token after it; leave it out, or take a shorter "
          "context");
    }
    windows += windows_of(file, context);
  }
  return windows;
}

}  // namespace

TokenSource::TokenSource(std::vector<TokenFile> files, std::int64_t context,
                         std::int64_t vocabulary, std::optional<std::uint64_t> shuffle_seed)
    : IndexedSource(count_windows(files, context), shuffle_seed),
      files_(std::move(files)),
      context_(context),
      vocabulary_(vocabulary) {
  std::int64_t end = 0;
  for (const TokenFile& file : files_) ends_.push_back(end += windows_of(file, context));
}

MicroBatch TokenSource::fetch(std::span<const std::int64_t> samples) {
  const tensor::Shape shape{std::ssize(samples), context_};
  const auto new_tokens = [&] {
    return tensor::Tensor::empty(memory(), shape, tensor::DType::kI32);
  };
  MicroBatch batch{{new_tokens()}, {new_tokens()}, {}};
  std::int32_t* inputs = batch.inputs[0].data<std::int32_t>();
  std::int32_t* labels = batch.labels[0].data<std::int32_t>();
  std::vector<std::int32_t> window(static_cast<std::size_t>(context_) + 1);
  for (const std::int64_t sample : samples) {
    read_window(sample, window);
    inputs = std::copy(window.begin(), window.end() - 1, inputs);
    labels = std::copy(window.begin() + 1, window.end(), labels);
  }
  return batch;
}

void TokenSource::read_window(std::int64_t sample, std::span<std::int32_t> window) const {
  const auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends_, sample) - ends_.begin());
  const TokenFile& file = files_[at];
  const std::int64_t first = (sample - (at == 0 ? 0 : ends_[at - 1])) * context_;
  file.read(first, window);
  const auto wrong =
      std::ranges::find_if(window, [this](std::int32_t token) { return token >= vocabulary_; });
  if (wrong == window.end()) return;
  throw tensor::InvalidArgument(
      "[tokens] " + file.path().string() + " has " + std::to_string(*wrong) + " at token " +
      std::to_string(first + (wrong - window.begin())) + "; expected tokens in [0, " +
      std::to_string(vocabulary_) + "), the model's vocabulary");
}

}  // namespace penstock::model
