// The CUDA devices that a test runs on: emulated ones, or those of the machine. Which it is, the
// link of the test decides, so one source serves both.
#pragma once

#include <string>

namespace penstock::testing {

bool devices_are_emulated();

// Begins afresh. Emulated devices are as many as wanted; gives how many there are.
int start_devices(int wanted = 1);

// Waits for them, and says what went wrong there or what was left: empty for nothing.
std::string finish_devices();

}  // namespace penstock::testing
