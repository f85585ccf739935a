// Marks of memory that nothing may read: every floating type reads them as NaN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace penstock::cuda_emulation {

// Repeated from the first byte on, each reads as NaN in f16, bf16, f32 and f64.
enum class Mark : std::uint16_t { kFresh = 0xffff, kFreed = 0xfffd, kGuard = 0xfff9 };

inline void fill(std::byte* data, std::size_t bytes, Mark mark) {
  const auto bits = static_cast<std::uint16_t>(mark);
  const auto* word = reinterpret_cast<const std::byte*>(&bits);
  std::size_t filled = std::min(bytes, sizeof(bits));
  std::copy_n(word, filled, data);
  while (filled < bytes) {  // doubles what is there
    const std::size_t more = std::min(filled, bytes - filled);
    std::memcpy(data + filled, data, more);
    filled += more;
  }
}

// Each word is like the one before it, and the first is the mark.
inline bool is_filled(const std::byte* data, std::size_t bytes, Mark mark) {
  std::byte first[sizeof(mark)];
  fill(first, sizeof(first), mark);
  if (std::memcmp(data, first, std::min(bytes, sizeof(first))) != 0) return false;
  return bytes <= sizeof(first) ||
         std::memcmp(data + sizeof(first), data, bytes - sizeof(first)) == 0;
}

// Under the address sanitizer every access to a closed range ends the process with its report;
// without it these do nothing.
inline void close(const void* data, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(data, bytes);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}
inline void open(const void* data, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}

}  // namespace penstock::cuda_emulation
