#include "comm/local/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/error.h"
#include "comm/local/collective_operation.h"

namespace penstock::comm::local {

namespace {

using tensor::Tensor;

// One for each memory of a device that holds some of the tensors. A tensor that came from another
// rank is in that one's memory still; it was sealed, so what wrote it is queued there already.
std::vector<std::shared_ptr<tensor::Fence>> fences_of(const Message& message) {
  std::vector<std::shared_ptr<tensor::Fence>> fences;
  std::vector<const tensor::Allocator*> seen;
  for (const Tensor& tensor : message.tensors) {
    if (tensor.device().type != tensor::DeviceType::kCuda) continue;
    tensor::Allocator& memory = tensor.storage()->allocator();
    if (std::ranges::find(seen, &memory) != seen.end()) continue;
    seen.push_back(&memory);
    if (auto fence = memory.fence()) fences.push_back(std::move(fence));
  }
  return fences;
}

// Meta tensors lie nowhere.
bool lies_elsewhere(tensor::Device from, tensor::Device to) {
  return from != to && !from.is_meta() && !to.is_meta();
}

// Queued; the original is in use until that is done, and of a device the memory is its user.
Tensor copy_to(const std::shared_ptr<tensor::Allocator>& memory, const Tensor& from) {
  const Tensor to = Tensor::empty(memory, from.shape(), from.dtype());
  if (from.device() == tensor::kCpuDevice) {
    memory->upload(to.raw(), {from.raw(), from.nbytes()});
  } else {
    memory->copy(to.raw(), from.raw(), from.nbytes());
  }
  return to;
}

}  // namespace

Parcel::Parcel(Message message, Hub& hub, ChannelKind kind, int sender, int receiver)
    : message_(std::move(message)),
      fences_(fences_of(message_)),
      hub_(hub),
      kind_(kind),
      sender_(sender),
      receiver_(receiver) {}

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

Message Parcel::take(const std::shared_ptr<tensor::Allocator>& memory) {
  if (!fences_.empty() && memory->device() == tensor::kCpuDevice) {
    throw CommError("[comm] a message of tensors on a device, the first " +
                    message_.tensors.front().to_string() +
                    ", came to a receive with memory of the host; give irecv memory of a device");
  }
  Message message = std::move(message_);
  for (const auto& fence : fences_) memory->wait_for(*fence);
  // Before the lock: a copy may have to wait, and moves other transfers on meanwhile.
  std::vector<Tensor> copied;  // the originals, on devices
  for (tensor::Tensor& tensor : message.tensors) {
    if (!lies_elsewhere(tensor.device(), memory->device())) continue;
    Tensor original = std::exchange(tensor, copy_to(memory, tensor));
    if (original.device() != tensor::kCpuDevice) copied.push_back(std::move(original));
  }
  if (!message.tensors.empty()) {
    const std::lock_guard lock(hub_.charge_mutex());
    for (const Tensor& original : copied) original.storage()->add_user(memory);
    for (const tensor::Tensor& tensor : message.tensors) {
      tensor.storage()->charge(memory->counters());
      if (!fences_.empty()) tensor.storage()->add_user(memory);
    }
  }
  tell_taken();
  return message;
}

void Parcel::drop() {
  message_.tensors.clear();
  tell_taken();
}

void Parcel::tell_taken() {
  taken_.store(true, std::memory_order_seq_cst);
  if (awaited_.load(std::memory_order_seq_cst)) hub_.bell(sender_).ring();
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
