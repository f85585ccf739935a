#include "tensor/parallel.h"

#include <atomic>
#include <exception>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace penstock::tensor {

bool can_use_threads() noexcept {
#ifdef _OPENMP
  return true;
#else
  return false;
#endif
}

void poll_in_chunk(const Context& context) {
#ifdef _OPENMP
  if (omp_get_thread_num() != 0) return;  // thread 0 of a team is the rank's own
#endif
  poll(context);
}

namespace internal {

namespace {

void run_in_order(const Context& context, std::int64_t count, ChunkFn fn) {
  for (std::int64_t index = 0; index < count; ++index) {
    if (index > 0) poll(context);
    fn(index);
  }
}

#ifdef _OPENMP

// Holds the first exception of a team, since none may leave a parallel region.
class FirstError {
 public:
  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  void capture() noexcept {
    if (!any_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> any_{false};
  std::exception_ptr error_;  // written by one thread, read after the region's closing barrier
};

void run_on_team(const Context& context, std::int64_t count, ChunkFn fn) {
  FirstError error;
#pragma omp parallel for num_threads(context.threads) schedule(dynamic, 1)
  for (std::int64_t index = 0; index < count; ++index) {
    if (error.any()) continue;
    try {
      poll_in_chunk(context);
      fn(index);
    } catch (...) {
      error.capture();
    }
  }
  error.rethrow();
}

#endif

}  // namespace

void run_chunks(const Context& context, std::int64_t count, ChunkFn fn) {
#ifdef _OPENMP
  if (context.threads > 1) return run_on_team(context, count, fn);
#endif
  run_in_order(context, count, fn);
}

}  // namespace internal

}  // namespace penstock::tensor
