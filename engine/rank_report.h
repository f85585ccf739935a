// What each rank of a run has done: how long it waited, what it sent, what memory it took.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::engine {

// What the driver holds on a device for this process, which may have more ranks than one there.
struct DeviceBytes {
  std::int64_t allocated = 0;  // in blocks that are in use
  std::int64_t cached = 0;     // kept for the next blocks
  std::int64_t peak = 0;       // the most that was in use

  bool operator==(const DeviceBytes&) const = default;
};

// Of a rank whose passes are replayed as CUDA graphs.
struct GraphReport {
  std::int64_t bytes = 0;  // that its graphs have to themselves, beside all others
  std::int64_t captured = 0;
  std::int64_t replayed = 0;  // passes of training
  std::int64_t plain = 0;     // those that ran without a graph

  bool operator==(const GraphReport&) const = default;
};

// Since the engine was made, of calls that ended well.
struct RankReport {
  int rank = 0;
  int data_index = 0;
  int model_index = 0;
  std::vector<int> stages;       // those of the rank
  std::int64_t train_calls = 0;  // train_batch, step
  std::int64_t eval_calls = 0;   // eval_batch, eval_step
  double seconds = 0.0;          // in all of these
  double idle_seconds = 0.0;     // of these, waiting for what other ranks had still to do
  // Activations and gradients that went to other ranks of the pipe, and the bytes of their tensors.
  std::int64_t messages = 0;
  std::int64_t message_bytes = 0;
  // Gradients given to sums over replicas and over the ranks that share a layer out, and exchanged
  // with other ranks that use a tied weight.
  std::int64_t reduced_bytes = 0;
  // The most bytes at once: of all tensors that the engine allocated, those of graphs aside, and of
  // what the pipe buffers held at the ends of instructions, if that was measured
  // (Engine::measure_memory).
  std::int64_t peak_bytes = 0;
  std::optional<std::int64_t> buffer_bytes;
  // The plan for these two, if it was asked for and a batch was trained: RankMemory's total() and
  // pipe_buffers.
  std::optional<std::int64_t> planned_bytes;
  std::optional<std::int64_t> planned_buffer_bytes;
  std::optional<DeviceBytes> device;  // none for a rank that computes on the CPU
  std::optional<GraphReport> graphs;  // none where device.graphs is off
};

struct ReportOptions {
  // Plans training on the largest micro batch of train_batch so far, for which every layer and the
  // loss run once on the meta device: they must look at no element.
  bool plan = false;
};

// A table, for people.
std::string to_text(std::span<const RankReport> ranks);

}  // namespace penstock::engine
