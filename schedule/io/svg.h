// A trace as one picture: a row per rank, a box per pass, time to the right.
#pragma once

#include <string>

#include "schedule/trace.h"

namespace penstock::schedule {

struct SvgOptions {
  // Of the picture, in pixels. 0: as wide as the numbers in the boxes need, from 640 to 1,600.
  double width = 0.0;
};

// A self-contained SVG document without scripts. Boxes hold the micro batch; colour, lightness,
// letter and the pattern along the lower edge say which pass it is, paler boxes are later chunks of
// the rank, and passes that overlap share the height. Marks below the boxes are sends (ticks) and
// waits of receives (lines): activations in the upper row, gradients in the lower one.
// ScheduleError when the width is negative, or more than 100,000.
std::string to_svg(const Trace& trace, const SvgOptions& options = {});

}  // namespace penstock::schedule
