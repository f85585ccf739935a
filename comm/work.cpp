#include "comm/work.h"

#include "comm/error.h"
#include "comm/world.h"

namespace penstock::comm {

bool Work::done() {
  if (operation_ == nullptr) return true;
  if (!world_->advance(*operation_)) {
    world_->poll();
    if (!world_->advance(*operation_)) return false;
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
  if (world_->advance(*operation_)) return true;
  world_->poll();
  return world_->advance(*operation_);
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
