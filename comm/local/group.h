// Group: what the members of one local communicator share: mailboxes and collectives under way.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/collective.h"
#include "comm/delay.h"
#include "comm/local/hub.h"
#include "comm/message.h"
#include "comm/work.h"

namespace penstock::comm::local {

// A message on its way, which is the sender's operation too: done when the peer took the message.
class Parcel final : public Operation {
 public:
  // What devices have yet to compute of the tensors, the receiver's device will wait for.
  Parcel(Message message, Hub& hub, ChannelKind kind, int sender, int receiver);

  bool advance() override;
  std::string describe() const override;
  int missing_rank() const override { return taken() ? -1 : receiver_; }

  // The receiver's thread, one of these, once. Tensors of another device than the memory's are
  // copied into it; throws CommError for one of a device where the memory is the host's.
  Message take(const std::shared_ptr<tensor::Allocator>& memory);
  void drop();
  bool taken() const { return taken_.load(std::memory_order_acquire); }

 private:
  void tell_taken();

  // The sender's until it is in the mailbox, then the receiver's.
  Message message_;
  std::vector<std::shared_ptr<tensor::Fence>> fences_;
  Hub& hub_;
  ChannelKind kind_;
  int sender_;
  int receiver_;
  std::atomic<bool> taken_{false};
  std::atomic<bool> awaited_{false};  // the sender has looked and may be asleep
  [[no_unique_address]] Delay delay_;
};

// One channel: parcels from one sender to one receiver, in order.
class Mailbox {
 public:
  // The sender's thread.
  void push(std::shared_ptr<Parcel> parcel, Bell& receiver);
  // The receiver's thread; null when empty, and then the next push rings the receiver's bell.
  std::shared_ptr<Parcel> pop();

 private:
  std::atomic<std::uint64_t> pushed_{0};
  std::uint64_t popped_ = 0;
  std::atomic<bool> awaited_{false};
  std::mutex mutex_;
  std::deque<std::shared_ptr<Parcel>> parcels_;
};

// One collective under way, shared by its members. A member that has called it has passed phase 0;
// what the later phases are is the operation's matter.
struct Meeting {
  static constexpr int kPhases = 3;

  explicit Meeting(std::size_t members)
      : calls(members), parts(members), passed(std::make_unique<std::atomic<int>[]>(members)) {}

  Signature signature;  // of the first member that came
  int first_member = -1;
  // The tensors stay alive while another member may read them; each member's entry is its own.
  std::vector<CollectiveCall> calls;
  std::vector<const std::byte*> parts;            // what each member contributes, by group rank
  std::vector<std::byte> staging;                 // holds the parts, if they are small
  std::array<std::atomic<int>, kPhases> count{};  // members that passed each phase
  std::unique_ptr<std::atomic<int>[]> passed;     // phases passed, by member
  std::atomic<bool> failed{false};
  std::string error;  // written before failed is set
};

class Group {
 public:
  Group(Hub& hub, std::uint64_t id, std::vector<int> world_ranks);

  Hub& hub() { return hub_; }
  std::uint64_t id() const { return id_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int member) const { return world_ranks_[static_cast<std::size_t>(member)]; }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  Mailbox& mailbox(int from, int to, ChannelKind kind);

  // Member `member` calls its collective number `number`.
  std::shared_ptr<Meeting> join(std::uint64_t number, int member, CollectiveCall call);
  // Wakes all members.
  void ring_all();

 private:
  struct Open {
    std::shared_ptr<Meeting> meeting;
    int missing = 0;
  };

  Hub& hub_;
  std::uint64_t id_;
  std::vector<int> world_ranks_;
  std::vector<Mailbox> mailboxes_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Open> open_;  // collectives that some have not called yet
};

}  // namespace penstock::comm::local
