#include "tests/cuda_emulation/memory.h"

#include <algorithm>

namespace penstock::cuda_emulation {

namespace {

constexpr std::size_t kGuard = 256;  // on either side
// Of memory that was released and is kept, so that late uses are found.
constexpr std::size_t kRetiredBytes = std::size_t{64} << 20;
constexpr std::size_t kGuardedRetiredBytes = std::size_t{1} << 20;  // protecting takes time by size
constexpr std::size_t kRetiredBlocks = 4096;

std::string text(const Moment& moment) {
  return moment.what + " on stream " + std::to_string(moment.stream);
}

}  // namespace

void join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

std::uint64_t at(const Clock& clock, int stream) {
  const auto index = static_cast<std::size_t>(stream);
  return index < clock.size() ? clock[index] : 0;
}

Memory::~Memory() {
  for (auto& [address, block] : blocks_) discard(block);
}

Block& Memory::allocate(int device, std::size_t bytes, const Moment& when) {
  const Arena::Access access(arena_);
  std::byte* base = (device == kPinned ? pinned_ : arena_).take(kGuard + bytes + kGuard);
  std::byte* data = base + kGuard;
  fill(base, kGuard, Mark::kGuard);
  fill(data, bytes, Mark::kFresh);
  fill(data + bytes, kGuard, Mark::kGuard);
  close(base, kGuard);
  close(data + bytes, kGuard);
  Block& block = blocks_[reinterpret_cast<std::uintptr_t>(data)];
  block = Block{};
  block.data = data;
  block.bytes = bytes;
  block.device = device;
  block.allocated = when;
  return block;
}

void Memory::discard(Block& block) {
  std::byte* base = block.data - kGuard;
  open(base, kGuard + block.bytes + kGuard);
  (block.device == kPinned ? pinned_ : arena_).give(base, kGuard + block.bytes + kGuard);
}

Block* Memory::find(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  Block& block = std::prev(next)->second;
  return address < std::prev(next)->first + std::max<std::size_t>(block.bytes, 1) ? &block
                                                                                  : nullptr;
}

std::string Memory::use(Block& block, const Moment& when, const Clock& clock) {
  if (block.released) {
    return text(when) + " was given " + describe(block) + ", which " + text(*block.released) +
           " had released";
  }
  if (block.device != kPinned && at(clock, block.allocated.stream) < block.allocated.count) {
    return text(when) + " was given " + describe(block) + ", and no event orders it after " +
           text(block.allocated);
  }
  block.last_use[when.stream] = when;
  return {};
}

std::string Memory::release(Block& block, const Moment& when, const Clock& clock) {
  if (block.released) return describe(block) + " was released twice";
  block.released = when;
  for (const auto& [stream, use] : block.last_use) {
    if (at(clock, stream) < use.count) {
      return text(when) + " releases " + describe(block) + ", and no event orders it after " +
             text(use) + ", which uses the block";
    }
  }
  return {};
}

std::string Memory::retire(Block& block) {
  const Arena::Access access(arena_);
  std::string wrong = check_guards(block);
  fill(block.data, block.bytes, Mark::kFreed);
  close(block.data, block.bytes);
  retired_.push_back(reinterpret_cast<std::uintptr_t>(block.data));
  retired_bytes_ += block.bytes;
  const std::size_t most = arena_.guarded() ? kGuardedRetiredBytes : kRetiredBytes;
  while (retired_bytes_ > most || retired_.size() > kRetiredBlocks) {
    const auto oldest = blocks_.find(retired_.front());
    retired_.pop_front();
    retired_bytes_ -= oldest->second.bytes;
    open(oldest->second.data, oldest->second.bytes);
    if (!is_filled(oldest->second.data, oldest->second.bytes, Mark::kFreed)) {
      wrong = describe(oldest->second) + " was written after its release";
    }
    discard(oldest->second);
    blocks_.erase(oldest);
  }
  return wrong;
}

std::string Memory::check_guards(const Block& block) const {
  const Arena::Access access(arena_);
  const std::byte* after = block.data + block.bytes;
  open(block.data - kGuard, kGuard);
  open(after, kGuard);
  std::string wrong;
  if (!is_filled(block.data - kGuard, kGuard, Mark::kGuard)) {
    wrong = "bytes before " + describe(block) + " were written";
  } else if (!is_filled(after, kGuard, Mark::kGuard)) {
    wrong = "bytes after " + describe(block) + " were written";
  }
  close(block.data - kGuard, kGuard);
  close(after, kGuard);
  return wrong;
}

std::string Memory::check_all_guards() const {
  const Arena::Access access(arena_);
  for (const auto& [address, block] : blocks_) {
    if (block.released) continue;  // looked at when the release happens
    std::string wrong = check_guards(block);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string Memory::describe(const Block& block) const {
  return "a block of " + std::to_string(block.bytes) + " bytes" +
         (block.device == kPinned ? " of pinned memory" : " (" + text(block.allocated) + ")");
}

std::vector<const Block*> Memory::live() const {
  std::vector<const Block*> live;
  for (const auto& [address, block] : blocks_) {
    if (!block.released) live.push_back(&block);
  }
  return live;
}

}  // namespace penstock::cuda_emulation
