// The one error of this layer. It derives from the standard library alone, as the layer does.
#pragma once

#include <stdexcept>

namespace penstock::schedule {

// An argument, a text or a stream that cannot be right. The message names the value, the range
// expected and, where the value comes from a config, the config's key.
class ScheduleError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace penstock::schedule
