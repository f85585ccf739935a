// The devices of tests that run on either kind, emulated.
#include "tests/cuda_emulation/emulation.h"
#include "tests/support/cuda_devices.h"

namespace penstock::testing {

bool devices_are_emulated() {
  return true;
}

int start_devices(int wanted) {
  cuda_emulation::start({.devices = wanted});
  return wanted;
}

std::string finish_devices() {
  std::string text = cuda_emulation::fault();
  for (const std::string& left : cuda_emulation::leftovers()) {
    text += (text.empty() ? "left: " : ", left: ") + left;
  }
  return text;
}

}  // namespace penstock::testing
