// The error of an allocator whose device has no memory left.
#pragma once

#include <cstddef>
#include <new>
#include <string>

namespace penstock::tensor {

class OutOfMemory final : public std::bad_alloc {
 public:
  // `where` says more of the place, as in " on cuda:0".
  explicit OutOfMemory(std::size_t bytes, const std::string& where = {})
      : OutOfMemory("a tensor of " + std::to_string(bytes) + " bytes" + where) {}
  explicit OutOfMemory(const std::string& wanted)
      : what_("[memory] there is no room for " + wanted +
              "; use smaller micro batches, a smaller model or more pipeline stages") {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

}  // namespace penstock::tensor
