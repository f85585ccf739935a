// Capture: what a queue knows of graphs while work is watched, or goes into one instead of to the
// device.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensor/cuda/graph_memory.h"

namespace penstock::tensor::cuda {

class Capture {
 public:
  // Held while work is captured. Whatever another thread does with the stream, such as the release
  // of a block, has to wait for it, or it would become a part of the graph.
  std::recursive_mutex& mutex() { return mutex_; }

  // Watched work runs as ever, and what no graph can do again is remembered: it is the reason why
  // it cannot be captured. For the rank's thread alone.
  void begin_watching();
  std::string end_watching() noexcept;

  // Captured work goes into a graph, and what none can do again is an error. With the mutex held.
  void begin() { capturing_ = true; }
  void end() noexcept { capturing_ = false; }
  bool capturing() const { return capturing_; }

  // For operations, where they do what a graph cannot do again: take from the host what another
  // call finds changed, or wait for the device. `what` continues "it …". Throws Unsupported while
  // work is captured.
  void cannot_repeat(const char* what) {
    if (watching_ || capturing_) refuse(what);
  }

  // Whether new blocks are to come from the memory of graphs.
  bool takes_graph_memory() const { return capturing_ || for_graphs_; }
  void set_for_graphs(bool on) { for_graphs_ = on; }
  GraphMemory& memory() { return memory_; }
  const GraphMemory& memory() const { return memory_; }

  // Blocks of other memory that were released while work was captured.
  std::vector<void*>& released() { return released_; }

 private:
  void refuse(const char* what);

  std::recursive_mutex mutex_;
  bool capturing_ = false;
  bool watching_ = false;
  bool for_graphs_ = false;
  std::string reason_;
  std::vector<void*> released_;
  GraphMemory memory_;
};

}  // namespace penstock::tensor::cuda
