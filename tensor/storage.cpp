#include "tensor/storage.h"

#include <utility>

namespace penstock::tensor {

Storage::Storage(std::shared_ptr<Allocator> allocator, std::size_t bytes)
    : allocator_(std::move(allocator)), bytes_(bytes) {
  if (bytes_ > 0) data_ = static_cast<std::byte*>(allocator_->allocate(bytes_));
  allocator_->counters()->add(bytes_);
}

Storage::~Storage() {
  account().remove(bytes_);
  if (data_ != nullptr) allocator_->release(data_, bytes_);
}

MemoryCounters& Storage::account() const noexcept {
  return charged_ != nullptr ? *charged_ : *allocator_->counters();
}

void Storage::charge(const std::shared_ptr<MemoryCounters>& counters) noexcept {
  if (counters.get() == &account()) return;
  counters->add(bytes_);
  account().remove(bytes_);
  charged_ = counters;
}

}  // namespace penstock::tensor
