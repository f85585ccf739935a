// How a waiting rank spends its time.
#pragma once

#include <chrono>

#include "comm/world.h"

namespace penstock::comm {

// A wait spins this long at most, and only if there is a core for each rank of the host.
inline constexpr std::chrono::microseconds kSpinTime{20};
// Of this, the first part without giving the core away.
inline constexpr std::chrono::microseconds kBusyTime{2};

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The time-out as a duration, bounded so that adding it to a clock cannot overflow.
std::chrono::nanoseconds time_out(const WorldOptions& options);

}  // namespace penstock::comm
