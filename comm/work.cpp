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

bool Work::advance() {
  if (operation_ == nullptr) return true;
  if (!world_->advance(*operation_)) return false;
  operation_.reset();
  return true;
}

bool ReceiveWork::done() {
  check_started();
  if (world_->advance(*operation_)) return true;
  world_->poll();
  return world_->advance(*operation_);
}

Message ReceiveWork::wait() {
  check_started();
  world_->wait_for(*operation_);
  return take();
}

bool ReceiveWork::advance() {
  check_started();
  return world_->advance(*operation_);
}

Message ReceiveWork::take() {
  check_started();
  Message message = operation_->take();
  operation_.reset();
  return message;
}

void ReceiveWork::check_started() const {
  if (operation_ == nullptr) {
    throw tensor::InvalidArgument("[comm] this receive was already waited for, or never started");
  }
}

}  // namespace penstock::comm
