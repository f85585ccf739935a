#include "tensor/cuda/staging.h"

#include <utility>

#include "tensor/cuda/check.h"
#include "tensor/cuda/queue.h"

namespace penstock::tensor::cuda {

namespace {

constexpr std::size_t kRing = 4 * Staging::kPiece;
constexpr std::size_t kAlign = 64;  // of pieces

}  // namespace

std::byte* Staging::take(std::size_t bytes, Queue& queue) {
  if (ring_ == nullptr) {
    void* block = nullptr;
    check(cudaHostAlloc(&block, kRing, cudaHostAllocPortable), "cudaHostAlloc");
    ring_.reset(static_cast<std::byte*>(block));
  }
  while (true) {
    const std::size_t next = (end_ + kAlign - 1) / kAlign * kAlign;
    const bool wraps = next + bytes > kRing;  // no piece crosses the end
    const Piece* user = wraps ? user_of(next, kRing) : nullptr;
    const std::size_t begin = wraps ? 0 : next;
    if (user == nullptr) user = user_of(begin, begin + bytes);
    if (user == nullptr) {
      begin_ = begin;
      end_ = begin + bytes;
      return ring_.get() + begin_;
    }
    const cudaEvent_t done = user->done.get();
    queue.wait_for(done);
    // That may have taken pieces itself, and this one may be gone.
    if (!pieces_.empty() && pieces_.front().done.get() == done) {
      events_.push_back(std::move(pieces_.front().done));
      pieces_.pop_front();
    }
  }
}

void Staging::release(cudaStream_t stream) {
  Event event;
  if (events_.empty()) {
    event = make_event();
  } else {
    event = std::move(events_.back());
    events_.pop_back();
  }
  check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
  pieces_.push_back({begin_, end_, std::move(event)});
}

const Staging::Piece* Staging::user_of(std::size_t begin, std::size_t end) const {
  if (pieces_.empty()) return nullptr;
  const Piece& oldest = pieces_.front();  // those that reach into the range begin with it
  return oldest.begin < end && oldest.end > begin ? &oldest : nullptr;
}

}  // namespace penstock::tensor::cuda
