#include "comm/local/group.h"

#include <cstring>
#include <utility>

#include "comm/local/collective_operation.h"

namespace penstock::comm::local {

bool Parcel::advance() {
  if (!taken()) {
    awaited_.store(true, std::memory_order_seq_cst);
    if (!taken_.load(std::memory_order_seq_cst)) return false;
  }
  return !delay_.holds();
}

std::string Parcel::describe() const {
  return "rank " + std::to_string(receiver_) + " to receive this rank's " +
         std::string(name_of(kind_)) + " message";
}

Message Parcel::take(const std::shared_ptr<tensor::MemoryCounters>& account) {
  Message message = std::move(message_);
  if (!message.tensors.empty()) {
    const std::lock_guard lock(hub_.charge_mutex());
    for (const tensor::Tensor& tensor : message.tensors) tensor.storage()->charge(account);
  }
  taken_.store(true, std::memory_order_seq_cst);
  if (awaited_.load(std::memory_order_seq_cst)) hub_.bell(sender_).ring();
  return message;
}

void Mailbox::push(std::shared_ptr<Parcel> parcel, Bell& receiver) {
  {
    const std::lock_guard lock(mutex_);
    parcels_.push_back(std::move(parcel));
  }
  pushed_.fetch_add(1, std::memory_order_seq_cst);
  if (awaited_.load(std::memory_order_seq_cst)) receiver.ring();
}

std::shared_ptr<Parcel> Mailbox::pop() {
  if (pushed_.load(std::memory_order_acquire) == popped_) {
    awaited_.store(true, std::memory_order_seq_cst);
    if (pushed_.load(std::memory_order_seq_cst) == popped_) return nullptr;
  }
  awaited_.store(false, std::memory_order_relaxed);
  ++popped_;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Parcel> parcel = std::move(parcels_.front());
  parcels_.pop_front();
  return parcel;
}

Group::Group(Hub& hub, std::uint64_t id, std::vector<int> world_ranks)
    : hub_(hub),
      id_(id),
      world_ranks_(std::move(world_ranks)),
      mailboxes_(world_ranks_.size() * world_ranks_.size() * 2) {}

Mailbox& Group::mailbox(int from, int to, ChannelKind kind) {
  const auto n = world_ranks_.size();
  return mailboxes_[(static_cast<std::size_t>(from) * n + static_cast<std::size_t>(to)) * 2 +
                    static_cast<std::size_t>(kind)];
}

std::shared_ptr<Meeting> Group::join(std::uint64_t number, int member, CollectiveCall call) {
  const auto index = static_cast<std::size_t>(member);
  const std::lock_guard lock(mutex_);
  Open& open = open_[number];
  if (open.meeting == nullptr) {
    open = {std::make_shared<Meeting>(world_ranks_.size()), size()};
    open.meeting->signature = call.signature;
    open.meeting->first_member = member;
    if (is_staged(call.signature, size())) {
      open.meeting->staging.resize(contribution_bytes(call.signature, size()) *
                                   world_ranks_.size());
    }
  }
  std::shared_ptr<Meeting> meeting = open.meeting;
  if (--open.missing == 0) open_.erase(number);
  if (call.signature != meeting->signature) {
    if (meeting->failed.load(std::memory_order_relaxed)) return meeting;
    meeting->error = mismatch_text(world_rank(member), call.signature,
                                   world_rank(meeting->first_member), meeting->signature);
    meeting->failed.store(true, std::memory_order_release);
    return meeting;
  }
  if (call.in.defined()) {
    meeting->parts[index] = call.in.raw();
    if (!meeting->staging.empty()) {
      const std::size_t bytes = contribution_bytes(call.signature, size());
      std::byte* staged = meeting->staging.data() + index * bytes;
      std::memcpy(staged, call.in.raw(), bytes);
      meeting->parts[index] = staged;
    }
  }
  meeting->calls[index] = std::move(call);
  return meeting;
}

void Group::ring_all() {
  for (const int rank : world_ranks_) hub_.bell(rank).ring();
}

}  // namespace penstock::comm::local
