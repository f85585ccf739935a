#include "comm/work.h"

#include <cstddef>

#include "comm/error.h"
#include "comm/world.h"

namespace penstock::comm {

void advance_all(std::vector<std::shared_ptr<Operation>>& operations) {
  // Not std::erase_if: when advance() throws, that leaves moved-from entries behind.
  for (std::size_t i = 0; i < operations.size();) {
    if (operations[i]->advance()) {
      operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

bool Work::done() {
  if (operation_ == nullptr) return true;
  if (!operation_->advance()) {
    world_->poll();
    if (!operation_->advance()) return false;
  }
  operation_.reset();
  return true;
}

void Work::wait() {
  if (operation_ == nullptr) return;
  world_->wait_for(*operation_);
  operation_.reset();
}

bool ReceiveWork::done() {
  if (operation_ == nullptr) {
    throw tensor::InvalidArgument("[comm] this receive was already waited for, or never started");
  }
  if (operation_->advance()) return true;
  world_->poll();
  return operation_->advance();
}

Message ReceiveWork::wait() {
  if (operation_ == nullptr) {
    throw tensor::InvalidArgument("[comm] this receive was already waited for, or never started");
  }
  world_->wait_for(*operation_);
  Message message = operation_->take();
  operation_.reset();
  return message;
}

}  // namespace penstock::comm
