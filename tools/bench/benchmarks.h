// The benchmarks of penstock-bench; each prints what it measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::tools {

// Time per instruction that the executor adds to the handlers' own work: all handlers do nothing.
void bench_executor();

// One training step of 8 × (Linear 16→16 + Tanh) on 2 ranks: 32 micro batches of 4 rows, SGD.
void bench_mlp();

// Making, verifying and simulating the schedules of large pipes.
void bench_schedule();

// Predicted and measured makespan and idle times: passes that sleep, and a small GPT. Of one
// schedule, or, with an empty name, of several.
void bench_prediction(const std::string& schedule);

// Handing an activation over. Ranks as threads: that nothing is copied, and the time of a message.
// Under mpirun with two ranks: bandwidth against plain MPI in the same run.
void bench_handover();

// Saving a checkpoint of so many MiB per rank on 2 ranks, in a folder of its own inside `parent`,
// against plain writing and syncing of the same bytes there.
void bench_checkpoint(const std::filesystem::path& parent, std::int64_t mebibytes);
// The same asynchronously: how long the trainer waits, against one copy of as many bytes.
void bench_async_save(const std::filesystem::path& parent, std::int64_t mebibytes);

struct ShareOptions {
  std::vector<std::int64_t> widths = {128, 256, 512, 768};
  int micro_batches = 8;
  int repeats = 3;
};
// Share of a GPT's training step that is matrix products, on one and on two ranks, each with one
// core: the time of each product alone, by the BLAS in use and with as many cores busy, over the
// time of the step without the idle time that the simulator predicts from the step's own costs.
void bench_share(const ShareOptions& options);

}  // namespace penstock::tools
