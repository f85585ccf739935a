// A device without hardware: its memory is the host's, and what is queued on it runs late, a piece
// whenever somebody asks how far it is. What must be waited for and is not is then missing.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "tensor/allocator.h"

namespace penstock::comm::testing {

// The queue of one memory; shared with its fences.
class FakeQueue {
 public:
  // Says whether it is done; asked again until it is. Runs after all that was queued before.
  using Job = std::function<bool()>;

  // Returns the number of jobs queued so far.
  std::size_t push(Job job);
  std::size_t queued() const;
  bool reached(std::size_t number);
  void finish();

 private:
  // Runs one job, unless another thread is at it.
  void step();

  std::mutex running_;
  mutable std::mutex mutex_;  // of what follows
  std::deque<Job> jobs_;
  std::size_t queued_ = 0;
  std::size_t done_ = 0;
};

// Counts what a test wants to know.
class FakeMemory final : public tensor::Allocator {
 public:
  explicit FakeMemory(int device);
  ~FakeMemory() override;

  void* allocate(std::size_t bytes) override;
  // The block is overwritten and freed once the queue gets there.
  void release(void* data, std::size_t bytes) noexcept override;
  void zero(void* to, std::size_t bytes) override;
  void upload(void* to, std::span<const std::byte> from) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void download(std::span<std::byte> to, const void* from) override;
  void start_download(std::span<std::byte> to, const void* from) override;
  std::shared_ptr<tensor::Fence> fence() override;
  void wait_for(tensor::Fence& fence) override;

  int fences() const { return fences_; }
  int waits() const { return waits_; }
  int uploads() const { return uploads_; }
  // Called by uploads, as by those of a device that have to wait for room in its staging memory.
  void set_progress(std::function<void()> progress) { progress_ = std::move(progress); }
  FakeQueue& queue() { return *queue_; }

 private:
  std::shared_ptr<FakeQueue> queue_ = std::make_shared<FakeQueue>();
  std::function<void()> progress_;
  // Other ranks ask for fences too.
  std::atomic<int> fences_{0};
  std::atomic<int> waits_{0};
  std::atomic<int> uploads_{0};
};

}  // namespace penstock::comm::testing
