// Scratch memory of an operation, given back at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/context.h"

namespace penstock::tensor::cpu {

// Uninitialised elements from the rank's allocator, which keeps the block for the next call. They
// count as no tensor's memory. May be made on any of the rank's threads.
template <class T>
class Workspace {
 public:
  Workspace(const Context& context, std::int64_t count)
      : allocator_(context.allocator),
        bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        data_(static_cast<T*>(allocator_->allocate(bytes_))) {}
  ~Workspace() { allocator_->release(data_, bytes_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  T* data() const { return data_; }

 private:
  std::shared_ptr<Allocator> allocator_;
  std::size_t bytes_;
  T* data_;
};

}  // namespace penstock::tensor::cpu
