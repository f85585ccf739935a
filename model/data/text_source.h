// TextSource: text as bytes, each byte a token, for models that predict the next one.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/data/indexed_source.h"

namespace penstock::model {

// The whole file. Throws InvalidArgument, naming the path and the reason, when it cannot be read.
std::vector<std::uint8_t> read_file(const std::filesystem::path& path);

// Sample i is the window of context + 1 bytes that starts at byte i·context: the input is its first
// context bytes, the label its last, both i32 [rows, context]. So inputs do not overlap, and every
// byte but the first of the text is predicted once in an epoch; a tail too short for a window is
// not used.
class TextSource final : public IndexedSource {
 public:
  // Throws InvalidArgument when the text is shorter than one window.
  TextSource(std::vector<std::uint8_t> text, std::int64_t context,
             std::optional<std::uint64_t> shuffle_seed = std::nullopt);

 private:
  MicroBatch fetch(std::span<const std::int64_t> samples) override;

  std::vector<std::uint8_t> text_;
  std::int64_t context_;
};

}  // namespace penstock::model
