// GraphMemory: blocks for what graphs work on.
//
// Graphs have the addresses of their blocks in them, so no block goes back to the driver while this
// lives. Graphs run one after the other, in any order, and so may share the blocks that none of
// them needs any more when it ends. What one leaves behind for others must lie where no graph
// writes but itself. Which is which shows only when the work ends; so it is captured twice, the
// first time for trial.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tensor/cuda/handle.h"

namespace penstock::tensor::cuda {

class GraphMemory {
 public:
  GraphMemory() = default;
  ~GraphMemory();  // no graph may be at work
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  // Of the calling thread's device. Null when there is no room. Throws InternalError when the
  // second time something else is taken than for trial.
  void* take(std::size_t bytes);
  // False, and nothing happens, for a block of another origin.
  bool give_back(void* block) noexcept;
  bool contains(const void* block) const noexcept;

  // What is taken from begin_trial() on tells, by end(), what of it lasts; what is taken from
  // begin() on, in the same order, is for the graph.
  void begin_trial();
  void begin();
  void end() noexcept;

  std::int64_t bytes() const { return bytes_; }  // of all blocks

 private:
  enum class Stage { kNone, kTrial, kGraph };
  struct Block {
    std::size_t bytes;
    bool taken;
    bool written;  // by a graph
  };
  struct Taken {
    const void* block;
    std::size_t bytes;
    bool lasts;
  };
  using Blocks = std::map<const void*, Block>;

  Blocks::iterator find(std::size_t bytes, bool written);
  Blocks::iterator allocate(std::size_t bytes);

  Stream stream_;  // of allocating; made when first needed
  Blocks blocks_;
  std::int64_t bytes_ = 0;
  Stage stage_ = Stage::kNone;
  std::vector<Taken> trial_;            // in order
  std::vector<const void*> for_graph_;  // in order
};

}  // namespace penstock::tensor::cuda
