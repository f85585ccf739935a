// Fibers for the threads of a block: Boost.Context's, on stacks that are used again, with the
// notes that the address and thread sanitizers need to follow a switch of stacks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace penstock::cuda_emulation {

// The fibers of one host thread; only one set runs at a time, and none moves between threads.
class Fibers {
 public:
  Fibers();
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Makes fiber `index`, which calls body(index) when it is first resumed. The body must not throw
  // and has to return before the fiber is started again.
  void start(std::size_t index, const std::function<void(std::size_t)>& body);
  // Runs fiber `index` until it suspends itself or ends. Not from within a fiber.
  void resume(std::size_t index);
  // Goes back to whoever resumed the running fiber.
  void suspend();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::cuda_emulation
