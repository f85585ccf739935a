#include "model/data/token_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "tensor/error.h"

namespace penstock::model {

namespace {

constexpr std::int64_t kHeaderBytes = 1024;

struct Magic {
  std::int64_t number;
  std::string_view what;  // empty: tokens
  std::int64_t version = 0;
  std::int64_t width = 0;  // of a token, in bytes
};
constexpr Magic kMagics[] = {{20240520, "", 1, 2},
                             {20240801, "", 7, 4},
                             {20240326, "weights"},
                             {20240327, "a debug state"},
                             {20240328, "a tokenizer"},
                             {20240522, "an evaluation"},
                             {20240527, "an optimizer's state"}};

const Magic* find_magic(std::int64_t number) {
  const auto* found = std::ranges::find(kMagics, number, &Magic::number);
  return found == std::end(kMagics) ? nullptr : found;
}

// `width` bytes, the lowest first.
std::int64_t number_at(const std::uint8_t* bytes, std::int64_t width) {
  std::int64_t number = 0;
  for (std::int64_t i = width; i-- > 0;) number = number << 8 | bytes[i];
  return number;
}

std::int64_t first_number(const RangedFile& file) {
  std::array<std::uint8_t, 4> bytes{};
  if (file.size() >= std::ssize(bytes)) file.read(0, bytes);
  return number_at(bytes.data(), std::ssize(bytes));
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path, TokenFormat format) : file_(path) {
  // The bytes of gzip could be two tokens, so that the name must tell.
  if (path.extension() == ".gz") fail("is compressed; unpack it first, with gunzip");
  const bool known = find_magic(first_number(file_)) != nullptr;
  if (format == TokenFormat::kLlmC || (format == TokenFormat::kDetect && known)) {
    read_header();
    return;
  }
  if (file_.size() % width_ != 0) {
    fail("has " + std::to_string(file_.size()) +
         " bytes; expected 2 for each token, and llm.c's header if it has more");
  }
  tokens_ = file_.size() / width_;
}

void TokenFile::read_header() {
  if (file_.size() < kHeaderBytes) {
    fail("has " + std::to_string(file_.size()) + " bytes; expected llm.c's header of " +
         std::to_string(kHeaderBytes));
  }
  std::array<std::uint8_t, 12> head{};
  file_.read(0, head);
  const std::int64_t number = number_at(head.data(), 4);
  const Magic* magic = find_magic(number);
  if (magic == nullptr) {
    fail("begins with " + std::to_string(number) +
         "; expected llm.c's 20240520 (tokens of 16 bits) or 20240801 (of 32 bits)");
  }
  if (!magic->what.empty()) {
    fail("is " + std::string(magic->what) + " of llm.c (" + std::to_string(number) +
         "); expected tokens, 20240520 or 20240801");
  }
  const std::int64_t version = number_at(head.data() + 4, 4);
  if (version != magic->version) {
    fail("has version " + std::to_string(version) + "; expected " + std::to_string(magic->version) +
         " of llm.c's " + std::to_string(number));
  }
  begin_ = kHeaderBytes;
  width_ = magic->width;
  tokens_ = number_at(head.data() + 8, 4);
  const std::int64_t expected = begin_ + width_ * tokens_;
  if (tokens_ > std::numeric_limits<std::int32_t>::max() || file_.size() != expected) {
    fail("has " + std::to_string(file_.size()) + " bytes, but its header says " +
         std::to_string(tokens_) + " tokens, which are " + std::to_string(expected) +
         "; it is cut off or damaged");
  }
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  std::vector<std::uint8_t> bytes(tokens.size() * static_cast<std::size_t>(width_));
  file_.read(begin_ + first * width_, bytes);
  const std::uint8_t* from = bytes.data();
  for (std::size_t i = 0; i < tokens.size(); ++i, from += width_) {
    const std::int64_t token = number_at(from, width_);
    if (token > std::numeric_limits<std::int32_t>::max()) {
      fail("has " + std::to_string(token) + " at token " +
           std::to_string(first + static_cast<std::int64_t>(i)) + "; expected tokens below 2^31");
    }
    tokens[i] = static_cast<std::int32_t>(token);
  }
}

void TokenFile::fail(const std::string& what) const {
  throw tensor::InvalidArgument("[tokens] " + file_.path().string() + " " + what);
}

}  // namespace penstock::model
