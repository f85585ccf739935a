// Fault: what emulated work did wrong.
#pragma once

#include <stdexcept>

namespace penstock::cuda_emulation {

// Thrown by emulated work; the machine keeps it, and the calls after it fail as CUDA's do.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace penstock::cuda_emulation
