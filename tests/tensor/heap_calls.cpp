#include "tests/tensor/heap_calls.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> calls{0};
}

void* operator new(std::size_t bytes) {
  ++calls;
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}

namespace penstock::testing {

long heap_calls() {
  return calls;
}

}  // namespace penstock::testing
