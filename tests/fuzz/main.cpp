// penstock_fuzz TARGET COUNT [SEED [FILE]]: tries COUNT inputs of a target. FILE is where each
// input is put before it is tried, so that one that ends the process is not lost.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"

namespace penstock::fuzz {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// As a C++ string literal's inside.
std::string escaped(std::string_view input) {
  std::string out;
  for (const char c : input) {
    char hex[8];
    const auto byte = static_cast<unsigned char>(c);
    std::snprintf(hex, sizeof hex, byte < 0x20 || byte >= 0x7f || c == '"' ? "\\%03o" : "%c", byte);
    out += hex;
  }
  return out;
}

bool accepts(const Target& target, const std::string& input, const char* file) {
  if (file != nullptr) std::ofstream(file, std::ios::binary) << input;
  try {
    return target.accepts(input);
  } catch (const std::exception& error) {
    throw Violation(std::string(error.what()) + "\ninput: \"" + escaped(input) + "\"");
  }
}

int run(const Target& target, std::uint64_t count, std::uint64_t seed, const char* file) {
  for (const std::string& input : target.seeds) {
    if (!accepts(target, input, file)) throw Violation("refused: \"" + escaped(input) + "\"");
  }
  Mutator mutator(target, seed);
  std::uint64_t accepted = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string input = mutator.next();
    if (!accepts(target, input, file)) continue;
    ++accepted;
    mutator.keep(input);
  }
  std::printf("%s: %llu inputs, %llu accepted\n", std::string(target.name).c_str(),
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(accepted));
  // Inputs that are all refused, or all accepted, would try little.
  return accepted > count / 1000 && accepted < count ? 0 : 1;
}

}  // namespace
}  // namespace penstock::fuzz

int main(int argc, char** argv) {
  using namespace penstock::fuzz;
  const Target targets[] = {config_target(), csv_target(), override_target()};
  const auto count = argc > 2 ? number(argv[2]) : std::nullopt;
  const auto seed = argc > 3 ? number(argv[3]) : std::optional<std::uint64_t>(1);
  const auto target =
      std::ranges::find_if(targets, [&](const Target& t) { return argc > 1 && t.name == argv[1]; });
  if (!count || !seed || target == std::end(targets) || argc > 5) {
    std::fprintf(stderr, "usage: penstock_fuzz TARGET COUNT [SEED [FILE]]\ntargets:");
    for (const Target& t : targets) std::fprintf(stderr, " %s", std::string(t.name).c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  try {
    return run(*target, *count, *seed, argc > 4 ? argv[4] : nullptr);
  } catch (const Violation& violation) {
    std::fprintf(stderr, "%s: %s\n", argv[1], violation.what());
    return 1;
  }
}
