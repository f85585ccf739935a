#include "tests/cuda_emulation/emulation.h"

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "tests/cuda_emulation/machine.h"

namespace penstock::cuda_emulation {

std::uint64_t default_seed() {
  const char* text = std::getenv("PENSTOCK_EMULATION_SEED");
  return text == nullptr ? 0 : std::stoull(text);
}

bool default_guarded() {
  const char* text = std::getenv("PENSTOCK_EMULATION_GUARDED");
  return text == nullptr || std::string_view(text) != "0";
}

void start(const Options& options) {
  const std::vector<std::string> left = leftovers();
  if (!left.empty()) {
    throw std::logic_error("[emulation] cannot start afresh while there is " + left.front());
  }
  Lock lock = Machine::get().lock();
  Machine::get().start(options);
}

Counters counters() {
  Lock lock = Machine::get().lock();
  return Machine::get().counters();
}

void reset_counters() {
  Lock lock = Machine::get().lock();
  Machine::get().counters() = {};
}

std::string fault() {
  Lock lock = Machine::get().lock();
  return Machine::get().fault_text();
}

void clear_fault() {
  Lock lock = Machine::get().lock();
  Machine::get().clear_fault();
}

void discard() {
  Lock lock = Machine::get().lock();
  Machine::get().discard();
}

std::vector<std::string> leftovers() {
  Lock lock = Machine::get().lock();
  return Machine::get().leftovers(lock);
}

}  // namespace penstock::cuda_emulation
