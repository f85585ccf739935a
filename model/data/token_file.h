// Files of tokens as nanoGPT and llm.c write them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/data/ranged_file.h"

namespace penstock::model {

enum class TokenFormat : std::uint8_t {
  // llm.c's when the file begins with one of its magic numbers, which are no two tokens of a GPT-2;
  // else nanoGPT's.
  kDetect,
  // 16 bits per token, nothing else.
  kNanoGpt,
  // A header of 256 32-bit numbers (magic, version, number of tokens, zeros), then the tokens, of
  // 16 bits (magic 20240520, version 1) or 32 (magic 20240801, version 7).
  kLlmC,
};

// Numbers are little-endian. Errors are InvalidArgument; they name the file, what is wrong with it
// and what was expected.
class TokenFile {
 public:
  // Checks the header and the size.
  explicit TokenFile(const std::filesystem::path& path, TokenFormat format = TokenFormat::kDetect);

  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t size() const { return tokens_; }
  // Tokens [first, first + tokens.size()), all below size(). Throws for one that i32 cannot hold.
  void read(std::int64_t first, std::span<std::int32_t> tokens) const;

 private:
  void read_header();
  [[noreturn]] void fail(const std::string& what) const;

  RangedFile file_;
  std::int64_t begin_ = 0;  // of the first token, in bytes
  std::int64_t width_ = 2;  // of a token, in bytes
  std::int64_t tokens_ = 0;
};

}  // namespace penstock::model
