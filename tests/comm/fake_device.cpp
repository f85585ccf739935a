#include "tests/comm/fake_device.h"

#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::comm::testing {

namespace {

// Of a memory's queue. Its waiting job of another queue asks it as a host would.
class FakeFence final : public tensor::Fence {
 public:
  FakeFence(std::shared_ptr<FakeQueue> queue, std::size_t number)
      : queue_(std::move(queue)), number_(number) {}

  bool reached() override { return queue_->reached(number_); }
  void wait() override {
    while (!reached()) std::this_thread::yield();
  }
  std::shared_ptr<FakeQueue> queue() const { return queue_; }
  std::size_t number() const { return number_; }

 private:
  std::shared_ptr<FakeQueue> queue_;
  std::size_t number_;
};

}  // namespace

std::size_t FakeQueue::push(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  return ++queued_;
}

std::size_t FakeQueue::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

bool FakeQueue::reached(std::size_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (done_ >= number) return true;
  }
  step();
  return false;
}

void FakeQueue::finish() {
  while (!reached(queued())) std::this_thread::yield();
}

void FakeQueue::step() {
  const std::unique_lock running(running_, std::try_to_lock);
  if (!running.owns_lock()) return;
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return;
    job = jobs_.front();
  }
  if (!job()) return;
  const std::lock_guard lock(mutex_);
  jobs_.pop_front();
  ++done_;
}

FakeMemory::FakeMemory(int device) : Allocator({tensor::DeviceType::kCuda, device}) {}

FakeMemory::~FakeMemory() {
  queue_->finish();
}

void* FakeMemory::allocate(std::size_t bytes) {
  void* block = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  std::memset(block, 0xcd, bytes);
  return block;
}

void FakeMemory::release(void* data, std::size_t bytes) noexcept {
  queue_->push([data, bytes] {
    std::memset(data, 0xcd, bytes);
    std::free(data);
    return true;
  });
}

void FakeMemory::zero(void* to, std::size_t bytes) {
  queue_->push([to, bytes] {
    std::memset(to, 0, bytes);
    return true;
  });
}

void FakeMemory::upload(void* to, std::span<const std::byte> from) {
  ++uploads_;
  if (progress_) progress_();
  queue_->push([to, bytes = std::vector<std::byte>(from.begin(), from.end())] {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    return true;
  });
}

void FakeMemory::copy(void* to, const void* from, std::size_t bytes) {
  queue_->push([to, from, bytes] {
    if (bytes > 0) std::memmove(to, from, bytes);
    return true;
  });
}

void FakeMemory::download(std::span<std::byte> to, const void* from) {
  start_download(to, from);
  queue_->finish();
}

void FakeMemory::start_download(std::span<std::byte> to, const void* from) {
  queue_->push([to, from] {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    return true;
  });
}

std::shared_ptr<tensor::Fence> FakeMemory::fence() {
  ++fences_;
  return std::make_shared<FakeFence>(queue_, queue_->queued());
}

void FakeMemory::wait_for(tensor::Fence& fence) {
  ++waits_;
  auto& other = static_cast<FakeFence&>(fence);
  queue_->push([queue = other.queue(), number = other.number()] { return queue->reached(number); });
}

}  // namespace penstock::comm::testing
