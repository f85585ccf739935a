#include "tensor/storage.h"

#include <algorithm>
#include <utility>

namespace penstock::tensor {

Storage::Storage(std::shared_ptr<Allocator> allocator, std::size_t bytes)
    : allocator_(std::move(allocator)), bytes_(bytes) {
  if (bytes_ > 0) data_ = static_cast<std::byte*>(allocator_->allocate(bytes_));
  allocator_->counters()->add(bytes_);
}

Storage::~Storage() {
  account().remove(bytes_);
  if (data_ == nullptr) return;
  try {
    for (const auto& user : users_) {
      if (const auto done = user->fence()) allocator_->wait_for(*done);
    }
  } catch (...) {
    return;  // the device has failed: what it may still touch is given to nobody
  }
  allocator_->release(data_, bytes_);
}

void Storage::add_user(const std::shared_ptr<Allocator>& user) {
  if (user == allocator_ || std::ranges::find(users_, user) != users_.end()) return;
  users_.push_back(user);
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
