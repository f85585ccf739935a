// How pictures tell passes apart: by colour, by lightness, by a pattern and by a letter, so that
// they can be read by the colour-blind and in grey print too. Private to the pictures.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "schedule/opcode.h"

namespace penstock::schedule {

struct Colour {
  int red, green, blue;
};

std::string to_hex(Colour colour);  // "#8fd0f5"
bool is_dark(Colour colour);        // white text is read better on it

// The pattern along a box's lower edge.
enum class Band { kNone, kHatched, kSolid, kDotted };

struct PassStyle {
  Opcode opcode;
  std::string_view name;
  std::string_view band_name;
  Band band;
  Colour colour;
};

// Colours after Okabe and Ito's palette; lightness falls from first to last.
inline constexpr std::array kPassStyles = {
    PassStyle{Opcode::kForwardPass, "forward", "none", Band::kNone, {0x8f, 0xd0, 0xf5}},
    PassStyle{Opcode::kBackwardInput,
              "backward, input part",
              "hatched",
              Band::kHatched,
              {0xe9, 0xa8, 0x1c}},
    PassStyle{Opcode::kBackwardPass, "backward", "solid", Band::kSolid, {0xd5, 0x5e, 0x00}},
    PassStyle{Opcode::kBackwardWeight,
              "backward, weight part",
              "dotted",
              Band::kDotted,
              {0x00, 0x75, 0x5a}},
};

inline constexpr Colour kOptimizerColour = {0x6b, 0x6b, 0x76};
inline constexpr std::string_view kActivationColour = "#1f5f99";
inline constexpr std::string_view kGradientColour = "#a34700";

// The first chunk of a rank has the full colour, the last one the palest.
Colour shade(Colour colour, int chunk, int num_chunks);

// Nullptr for an instruction that is no pass.
const PassStyle* style_of(Opcode opcode);

}  // namespace penstock::schedule
