// Staging: pinned memory through which bytes cross between a device and memory of the host that
// the driver would otherwise wait to copy.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include <cuda_runtime.h>

#include "tensor/cuda/handle.h"

namespace penstock::tensor::cuda {

class Queue;

// A ring: pieces are used again in the order in which they were taken, each once the stream has
// passed the point up to which it was in use. For one thread; work that uses it is waited for
// before it is destroyed.
class Staging {
 public:
  static constexpr std::size_t kPiece = std::size_t{4} << 20;  // the largest, in bytes

  // Waits for the device, by the queue, only when all of the ring is in use.
  std::byte* take(std::size_t bytes, Queue& queue);
  // The piece taken last may be used again after what the stream has queued by now. Nothing else
  // is taken between the two.
  void release(cudaStream_t stream);

 private:
  struct Piece {
    std::size_t begin, end;
    Event done;
  };

  // The oldest of the pieces that reach into the range; null: none does.
  const Piece* user_of(std::size_t begin, std::size_t end) const;

  std::unique_ptr<std::byte, Destroy<cudaFreeHost>> ring_;  // made when first needed
  std::deque<Piece> pieces_;                                // in use, the oldest first
  std::vector<Event> events_;                               // of pieces that were
  std::size_t begin_ = 0, end_ = 0;                         // of the piece taken last
};

}  // namespace penstock::tensor::cuda
