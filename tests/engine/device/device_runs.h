// Training whose ranks compute on devices, beside the same on the CPU: what tests of emulated and
// of real devices share.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/model_axis_runs.h"

namespace penstock::testing {

struct DeviceRun {
  ModelGrid grid = {};
  std::string schedule = "1f1b";
  int chunks = 1;
  int zero = 0;
  std::string transport = "auto";
  bool sharing = false;
  int steps = 3;
  std::string more = "{}";  // further members of the configuration
  model::Module module = small_gpt2();

  std::string text() const;
};

// One of each: grids up to 2 x 2 x 2, and interleaved and zero-bubble schedules.
std::vector<DeviceRun> runs_on_devices();

// Members of the section "device" but for its type are left out for the CPU.
Trained train_on_cpu(const DeviceRun& run);
Trained train_on_devices(const DeviceRun& run);

// Fails the test unless losses and the first step's gradients agree to 1e-5 of themselves.
void expect_same_training(const Trained& on_devices, const Trained& on_cpu);

}  // namespace penstock::testing
