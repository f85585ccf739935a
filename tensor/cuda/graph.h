// Graphs: work that was captured once and is queued again with one call. No header of CUDA is
// needed to include this.
//
// A graph does again exactly what was captured: on the same addresses, with the same numbers. What
// it reads must therefore lie where it lay then, and what it takes from the host must not change.
// Both are looked after here as far as this can see: memory that work allocates while it is
// captured is kept for graphs, and work that copies from the host, waits for the device or draws
// random numbers is told apart, and refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tensor/allocator.h"

namespace penstock::tensor::cuda {

class Queue;

class Graph {
 public:
  // Takes an executable graph of CUDA's.
  Graph(std::shared_ptr<Queue> queue, void* executable);
  // Does not wait for what is queued.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Queues the work once, in the order of the memory's other work. Throws DeviceError.
  void launch();

 private:
  std::shared_ptr<Queue> queue_;
  void* executable_;
};

// Runs `work`, whose operations on the memory's contexts are not done but become the graph. It is
// run twice, the first time to find out what it leaves behind (graph_memory.h), and has to do the
// same both times. It must touch nothing that is released before the graph is, but what it
// allocates itself. Throws what `work` throws; Unsupported for what no graph can hold; DeviceError.
std::unique_ptr<Graph> capture(Allocator& memory, const std::function<void()>& work);

// Runs `work` as ever, and says what of it no graph can do again, such as "it copied from the
// host"; nothing: it may be captured. What runs for the first time must not be captured at once:
// the driver and its libraries prepare themselves then.
std::string run_watched(Allocator& memory, const std::function<void()>& work);

// In a scope, the memory's new blocks are of those that are kept for graphs.
class ForGraphs {
 public:
  explicit ForGraphs(Allocator& memory);
  ~ForGraphs();
  ForGraphs(const ForGraphs&) = delete;
  ForGraphs& operator=(const ForGraphs&) = delete;

 private:
  std::shared_ptr<Queue> queue_;
};

// Whether a block of the memory is one of those that are kept for graphs.
bool is_graph_memory(const Allocator& memory, const void* block);
// Bytes of all of those, taken or not. They come on top of those that device_memory() tells.
std::int64_t graph_bytes(const Allocator& memory);

}  // namespace penstock::tensor::cuda
