#include "tensor/cuda/staging.h"

#include <utility>

#include "tensor/cuda/check.h"

namespace penstock::tensor::cuda {

namespace {

constexpr std::size_t kRing = 4 * Staging::kPiece;
constexpr std::size_t kAlign = 64;  // of pieces

}  // namespace

std::byte* Staging::take(std::size_t bytes) {
  if (ring_ == nullptr) {
    void* block = nullptr;
    check(cudaHostAlloc(&block, kRing, cudaHostAllocPortable), "cudaHostAlloc");
    ring_.reset(static_cast<std::byte*>(block));
  }
  begin_ = (end_ + kAlign - 1) / kAlign * kAlign;
  if (begin_ + bytes > kRing) {  // no piece crosses the end
    retire(begin_, kRing);
    begin_ = 0;
  }
  end_ = begin_ + bytes;
  retire(begin_, end_);
  return ring_.get() + begin_;
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

// Waits for the pieces that reach into the range; they are the oldest.
void Staging::retire(std::size_t begin, std::size_t end) {
  while (!pieces_.empty() && pieces_.front().begin < end && pieces_.front().end > begin) {
    check(cudaEventSynchronize(pieces_.front().done.get()), "cudaEventSynchronize");
    events_.push_back(std::move(pieces_.front().done));
    pieces_.pop_front();
  }
}

}  // namespace penstock::tensor::cuda
