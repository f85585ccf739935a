// TokenSource: windows of token files, for models that predict the next token.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/data/indexed_source.h"
#include "model/data/token_file.h"

namespace penstock::model {

// Windows of context + 1 tokens that start every `context` tokens of a file: the input is a
// window's first context tokens, the label its last, both i32 [rows, context]; so every token of a
// file but the first is predicted once in an epoch, and a tail too short for a window is not used.
// The windows of several files follow each other; none reaches from one into the next. Files are
// read by ranges, as windows are asked for.
class TokenSource final : public IndexedSource {
 public:
  // A window with a token outside of [0, vocabulary) is an error of the call that would give it.
  // Throws InvalidArgument for no files, a context below 1, and a file without a whole window.
  TokenSource(std::vector<TokenFile> files, std::int64_t context, std::int64_t vocabulary,
              std::optional<std::uint64_t> shuffle_seed = std::nullopt);

 private:
  MicroBatch fetch(std::span<const std::int64_t> samples) override;
  void read_window(std::int64_t sample, std::span<std::int32_t> window) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> ends_;  // of each file: its last sample's number + 1
  std::int64_t context_;
  std::int64_t vocabulary_;
};

}  // namespace penstock::model
