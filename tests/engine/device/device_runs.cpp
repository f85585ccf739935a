#include "tests/engine/device/device_runs.h"

#include <nlohmann/json.hpp>

namespace penstock::testing {

namespace {

using nlohmann::json;

Training training(const DeviceRun& run, json members) {
  members["pipeline"]["schedule"] = run.schedule;
  members["pipeline"]["chunks"] = run.chunks;
  if (run.schedule == "zbv") members["pipeline"]["stage_map"] = "v";
  members["zero_optimization"]["stage"] = run.zero;
  return {.grid = run.grid,
          .module = run.module,
          .steps = run.steps,
          .more = members.dump(),
          .gradients = run.zero == 0};
}

}  // namespace

std::string DeviceRun::text() const {
  return grid.text() + ", " + schedule + ", chunks " + std::to_string(chunks) + ", ZeRO " +
         std::to_string(zero) + ", " + transport + (sharing ? ", shared" : "");
}

std::vector<DeviceRun> runs_on_devices() {
  std::vector<DeviceRun> runs;
  for (const ModelGrid& grid : std::vector<ModelGrid>{{1, 1, 1},
                                                      {2, 1, 1},
                                                      {1, 2, 1},
                                                      {1, 1, 2},
                                                      {3, 1, 1},
                                                      {2, 2, 1},
                                                      {2, 1, 2},
                                                      {2, 2, 2},
                                                      {2, 2, 2, true}}) {
    runs.push_back({.grid = grid});
  }
  runs.push_back({.grid = {2, 1, 1}, .schedule = "interleaved_1f1b", .chunks = 2});
  runs.push_back({.grid = {2, 2, 1}, .schedule = "zb1p"});
  runs.push_back({.grid = {2, 1, 2}, .schedule = "zbv", .chunks = 2});
  runs.push_back({.grid = {2, 2, 1}, .zero = 1});
  runs.push_back({.grid = {2, 2, 2}, .zero = 2, .transport = "staged"});
  runs.push_back({.grid = {2, 2, 1}, .transport = "auto", .sharing = true});
  return runs;
}

Trained train_on_cpu(const DeviceRun& run) {
  return train(training(run, json::parse(run.more)));
}

Trained train_on_devices(const DeviceRun& run) {
  json members = json::parse(run.more);
  members["device"].update(
      {{"type", "cuda"}, {"transport", run.transport}, {"sharing", run.sharing}});
  return train(training(run, members));
}

void expect_same_training(const Trained& on_devices, const Trained& on_cpu) {
  expect_close_steps(on_devices.losses, on_devices.norms, on_cpu);
  if (!on_cpu.gradients.empty()) expect_close(on_devices.gradients, on_cpu.gradients);
}

}  // namespace penstock::testing
