#include "tensor/storage.h"

#include <utility>

namespace penstock::tensor {

Storage::Storage(std::shared_ptr<Allocator> allocator, std::size_t bytes)
    : allocator_(std::move(allocator)), account_(allocator_->counters()), bytes_(bytes) {
  if (bytes_ > 0) data_ = static_cast<std::byte*>(allocator_->allocate(bytes_));
  account_->add(bytes_);
}

Storage::~Storage() {
  account_->remove(bytes_);
  if (data_ != nullptr) allocator_->release(data_, bytes_);
}

void Storage::charge(const std::shared_ptr<MemoryCounters>& account) noexcept {
  if (account == account_) return;
  account->add(bytes_);
  account_->remove(bytes_);
  account_ = account;
}

}  // namespace penstock::tensor
