// Loops over independent chunks of work, on the OpenMP threads of the rank that calls.
//
// Results never depend on the number of threads: callers cut work into chunks whose size follows
// from the shapes alone, and each chunk writes its own elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "tensor/context.h"

namespace penstock::tensor {

namespace internal {

// Borrows a callable for the length of one call: what std::function would do with an allocation.
class ChunkFn {
 public:
  template <class Fn>
  explicit ChunkFn(Fn& fn)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(fn)))),
        call_([](void* object, std::int64_t index) { (*static_cast<Fn*>(object))(index); }) {}
  void operator()(std::int64_t index) const { call_(object_, index); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t);
};

void run_chunks(const Context& context, std::int64_t count, ChunkFn fn);

}  // namespace internal

// True when this build can use more than one thread (CMake option PENSTOCK_OPENMP).
bool can_use_threads() noexcept;

// Calls fn(index) once for each index in [0, count), on up to context.threads threads and in no
// particular order; in order on the calling thread when that is one thread or one index. A call
// should be worth some microseconds. Between calls the rank's own thread polls for communication.
// The first exception that a call throws is rethrown here, after all threads have stopped.
template <class Fn>
void parallel_for(const Context& context, std::int64_t count, Fn&& fn) {
  if (count == 1) {
    fn(std::int64_t{0});
  } else if (count > 1) {
    internal::run_chunks(context, count, internal::ChunkFn(fn));
  }
}

// Polls when called on the rank's own thread, else does nothing: for long work inside of one chunk.
void poll_in_chunk(const Context& context);

// Cuts [0, size) into chunks of chunk_size, the last one shorter, and calls fn(begin, end) for
// each as parallel_for does.
template <class Fn>
void parallel_chunks(const Context& context, std::int64_t size, std::int64_t chunk_size, Fn&& fn) {
  parallel_for(context, (size + chunk_size - 1) / chunk_size, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * chunk_size;
    fn(begin, std::min(begin + chunk_size, size));
  });
}

}  // namespace penstock::tensor
