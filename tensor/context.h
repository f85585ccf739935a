// Context: everything that an operation needs beside its tensors, passed first to each of them.
//
// Nothing of it is global or thread-local: a rank owns its context and hands it down.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "tensor/allocator.h"
#include "tensor/device.h"

namespace penstock::tensor {

class Tape;

// Called between tape nodes and inside long loops, so that communication moves on while the rank
// computes. poll() must return at once when nothing is pending; it may throw (a peer was lost).
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void poll() = 0;
};

// The key of counter-based random numbers (random.h): a draw depends on these and on the sample
// and element that it is for, never on the grid or on what was drawn before.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t layer = 0;  // global layer index
  std::uint32_t call = 0;   // counts the draws inside one forward of that layer
};

struct Context {
  explicit Context(std::shared_ptr<Allocator> memory)
      : device(memory->device()), allocator(std::move(memory)) {}

  Device device;
  std::shared_ptr<Allocator> allocator;  // shared with the storages that came from it
  int threads = 1;                       // OpenMP threads that an operation may use
  Tape* tape = nullptr;                  // records operations while set; borrowed
  Progress* progress = nullptr;          // borrowed; may be null
  RandomKey random;
};

inline void poll(const Context& context) {
  if (context.progress != nullptr) context.progress->poll();
}

}  // namespace penstock::tensor
