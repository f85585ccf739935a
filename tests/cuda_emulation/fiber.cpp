#include "tests/cuda_emulation/fiber.h"

#include <deque>
#include <stdexcept>
#include <utility>

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
// The thread sanitizer's own instructions are left out of this file (CMakeLists.txt): they keep a
// stack of calls, and calls here begin on one fiber and return on another.
#if defined(PENSTOCK_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace penstock::cuda_emulation {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(PENSTOCK_THREAD_SANITIZER)
constexpr std::size_t kStackBytes = 256 * 1024;  // their frames are larger
#else
constexpr std::size_t kStackBytes = 128 * 1024;
#endif

// Memory for one stack; the page below it faults when touched.
class Stack {
 public:
  Stack() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    base_ = mmap(nullptr, page_ + kStackBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED || mprotect(base_, page_, PROT_NONE) != 0) {
      throw std::runtime_error("[emulation] no memory for the stack of a fiber");
    }
  }
  ~Stack() { munmap(base_, page_ + kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  std::byte* bottom() const { return static_cast<std::byte*>(base_) + page_; }

 private:
  std::size_t page_;
  void* base_ = nullptr;
};

// Boost.Context's way of asking for a stack.
struct GivenStack {
  const Stack* stack;

  boost::context::stack_context allocate() {
    boost::context::stack_context context;
    context.size = kStackBytes;
    context.sp = stack->bottom() + kStackBytes;
    return context;
  }
  void deallocate(boost::context::stack_context&) noexcept {}
};

}  // namespace

struct Fibers::Impl {
  struct Slot {
    Stack stack;
    boost::context::fiber fiber;
    void* tsan = nullptr;
    void* fake_stack = nullptr;
  };

  std::deque<Slot> slots;
  Slot* running = nullptr;
  boost::context::fiber resumer;
  // The resumer's stack, as the sanitizers know it.
  const void* resumer_bottom = nullptr;
  std::size_t resumer_bytes = 0;
  void* resumer_tsan = nullptr;

  // Called on the stack that was switched to.
  void arrived([[maybe_unused]] Slot& slot) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(slot.fake_stack, &resumer_bottom, &resumer_bytes);
#endif
  }
  // Called on the stack of a fiber before it is left, for the last time or not.
  void leaving([[maybe_unused]] Slot& slot, [[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &slot.fake_stack, resumer_bottom,
                                   resumer_bytes);
#endif
#if defined(PENSTOCK_THREAD_SANITIZER)
    __tsan_switch_to_fiber(resumer_tsan, 0);
#endif
  }
};

Fibers::Fibers() : impl_(std::make_unique<Impl>()) {}

Fibers::~Fibers() {
#if defined(PENSTOCK_THREAD_SANITIZER)
  for (Impl::Slot& slot : impl_->slots) {
    if (slot.tsan != nullptr) __tsan_destroy_fiber(slot.tsan);
  }
#endif
}

void Fibers::start(std::size_t index, const std::function<void(std::size_t)>& body) {
  while (impl_->slots.size() <= index) impl_->slots.emplace_back();
  Impl::Slot& slot = impl_->slots[index];
#if defined(PENSTOCK_THREAD_SANITIZER)
  if (slot.tsan == nullptr) slot.tsan = __tsan_create_fiber(0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  slot.fake_stack = nullptr;
  __asan_unpoison_memory_region(slot.stack.bottom(), kStackBytes);
#endif
  slot.fiber = boost::context::fiber(std::allocator_arg, GivenStack{&slot.stack},
                                     [this, &slot, &body, index](boost::context::fiber&& resumer) {
                                       impl_->arrived(slot);
                                       impl_->resumer = std::move(resumer);
                                       body(index);
                                       impl_->leaving(slot, true);
                                       return std::move(impl_->resumer);
                                     });
}

void Fibers::resume(std::size_t index) {
  Impl::Slot& slot = impl_->slots[index];
  impl_->running = &slot;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, slot.stack.bottom(), kStackBytes);
#endif
#if defined(PENSTOCK_THREAD_SANITIZER)
  impl_->resumer_tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(slot.tsan, 0);
#endif
  slot.fiber = std::move(slot.fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  impl_->running = nullptr;
}

void Fibers::suspend() {
  Impl::Slot& slot = *impl_->running;
  impl_->leaving(slot, false);
  impl_->resumer = std::move(impl_->resumer).resume();
  impl_->arrived(slot);
}

}  // namespace penstock::cuda_emulation
