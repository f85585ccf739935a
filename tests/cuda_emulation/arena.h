// Arena: where blocks of emulated devices lie. Guarded, only what devices run may touch them, but
// for the largest: a host thread that does ends the program by SIGSEGV, as it would where memory is
// a device's.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace penstock::cuda_emulation {

// Not safe for threads: the machine's lock guards it.
class Arena {
 public:
  // Throws std::bad_alloc when there are no addresses for so many bytes.
  Arena(bool guarded, std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  bool guarded() const { return base_ != nullptr; }
  // Aligned to 256 bytes.
  std::byte* take(std::size_t bytes);
  void give(std::byte* block, std::size_t bytes);

  // While one lives, all blocks may be touched, by any thread.
  class Access {
   public:
    explicit Access(Arena& arena) : arena_(arena) { arena_.enter(); }
    ~Access() { arena_.leave(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    Arena& arena_;
  };

 private:
  void enter();
  void leave();
  void protect(int protection) const;

  std::byte* base_ = nullptr;  // null: not guarded, blocks come from the heap
  std::size_t reserved_ = 0;
  std::size_t used_ = 0;                                 // from the base; a multiple of a page
  std::size_t next_ = 0;                                 // of what was never given out
  int inside_ = 0;                                       // accesses that live
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by size
};

}  // namespace penstock::cuda_emulation
