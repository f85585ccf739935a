#include "schedule/io/style.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace penstock::schedule {
namespace {

constexpr double kPalest = 0.55;  // share of white

int towards_white(int channel, double share) {
  return static_cast<int>(std::lround(channel + share * (255 - channel)));
}

}  // namespace

std::string to_hex(Colour colour) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "#%02x%02x%02x", colour.red & 0xff, colour.green & 0xff,
                colour.blue & 0xff);
  return text.data();
}

bool is_dark(Colour colour) {
  return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue < 128.0;
}

Colour shade(Colour colour, int chunk, int num_chunks) {
  if (num_chunks < 2) return colour;
  const double share = kPalest * chunk / (num_chunks - 1);
  return {towards_white(colour.red, share), towards_white(colour.green, share),
          towards_white(colour.blue, share)};
}

const PassStyle* style_of(Opcode opcode) {
  const auto* const found = std::ranges::find(kPassStyles, opcode, &PassStyle::opcode);
  return found == kPassStyles.end() ? nullptr : found;
}

}  // namespace penstock::schedule
