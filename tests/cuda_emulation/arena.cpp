#include "tests/cuda_emulation/arena.h"

#include <new>
#include <stdexcept>

#include <sys/mman.h>

namespace penstock::cuda_emulation {

namespace {

constexpr std::size_t kAlignment = 256;  // CUDA's
constexpr std::size_t kStep = std::size_t{1} << 20;
// Larger blocks, such as the workspace of products, are not guarded: protecting takes time by size.
constexpr std::size_t kLargest = std::size_t{1} << 20;

std::size_t rounded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

Arena::Arena(bool guarded, std::size_t bytes) {
  if (!guarded) return;
  reserved_ = rounded(bytes + kStep, kStep);
  void* base =
      mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, reserved_);
}

std::byte* Arena::take(std::size_t bytes) {
  if (base_ == nullptr || bytes > kLargest) {
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment}));
  }
  const std::size_t size = rounded(bytes, kAlignment);
  std::vector<std::byte*>& blocks = free_[size];
  if (!blocks.empty()) {
    std::byte* block = blocks.back();
    blocks.pop_back();
    return block;
  }
  if (next_ + size > reserved_) throw std::bad_alloc();
  std::byte* block = base_ + next_;
  next_ += size;
  if (next_ > used_) {
    used_ = rounded(next_, kStep);
    protect(inside_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  return block;
}

void Arena::give(std::byte* block, std::size_t bytes) {
  if (base_ == nullptr || bytes > kLargest)
    return ::operator delete (block, std::align_val_t{kAlignment});
  free_[rounded(bytes, kAlignment)].push_back(block);
}

void Arena::enter() {
  if (base_ != nullptr && inside_++ == 0) protect(PROT_READ | PROT_WRITE);
}

void Arena::leave() {
  if (base_ != nullptr && --inside_ == 0) protect(PROT_NONE);
}

void Arena::protect(int protection) const {
  if (used_ > 0 && mprotect(base_, used_, protection) != 0) {
    throw std::runtime_error("[emulation] mprotect failed");
  }
}

}  // namespace penstock::cuda_emulation
