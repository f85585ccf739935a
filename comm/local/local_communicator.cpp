#include "comm/local/local_communicator.h"

#include <utility>

#include "comm/collective.h"
#include "comm/local/collective_operation.h"
#include "comm/local/local_world.h"
#include "comm/split.h"

namespace penstock::comm::local {

class LocalReceive final : public ReceiveOperation {
 public:
  LocalReceive(Inlet& inlet, ChannelKind kind, int sender,
               std::shared_ptr<tensor::Allocator> allocator)
      : inlet_(inlet), kind_(kind), sender_(sender), allocator_(std::move(allocator)) {}
  ~LocalReceive() override {
    if (parcel_ != nullptr) parcel_->drop();  // dropped: so is the message
  }

  bool advance() override {
    if (parcel_ == nullptr) inlet_.match();
    return parcel_ != nullptr && !delay_.holds();
  }
  Message take() override { return std::exchange(parcel_, nullptr)->take(allocator_); }
  std::string describe() const override {
    return "a message of kind " + std::string(name_of(kind_)) + " from rank " +
           std::to_string(sender_);
  }
  int missing_rank() const override { return parcel_ == nullptr ? sender_ : -1; }
  void deliver(std::shared_ptr<Parcel> parcel) { parcel_ = std::move(parcel); }

 private:
  Inlet& inlet_;
  ChannelKind kind_;
  int sender_;
  std::shared_ptr<tensor::Allocator> allocator_;
  std::shared_ptr<Parcel> parcel_;
  [[no_unique_address]] Delay delay_;
};

void Inlet::match() {
  while (!posted.empty()) {
    std::shared_ptr<Parcel> parcel = mailbox->pop();
    if (parcel == nullptr) return;
    posted.front()->deliver(std::move(parcel));
    posted.pop_front();
  }
}

LocalCommunicator::LocalCommunicator(LocalWorld& world, std::shared_ptr<Group> group, int rank)
    : world_(world), group_(std::move(group)), rank_(rank) {
  const auto channels = static_cast<std::size_t>(size()) * 2;
  inlets_.resize(channels);
  sent_.resize(channels);
  for (int peer = 0; peer < size(); ++peer) {
    for (const ChannelKind kind : {ChannelKind::kActivation, ChannelKind::kGradient}) {
      inlets_[channel_index(peer, kind)].mailbox = &group_->mailbox(peer, rank_, kind);
    }
  }
}

LocalCommunicator::~LocalCommunicator() = default;

Work LocalCommunicator::isend(Message message, int peer, ChannelKind kind) {
  check_open();
  message = checked_message(std::move(message), peer, size(), false);
  const int receiver = group_->world_rank(peer);
  auto parcel =
      std::make_shared<Parcel>(std::move(message), group_->hub(), kind, world_.rank(), receiver);
  auto& sent = sent_[channel_index(peer, kind)];
  while (!sent.empty() && sent.front()->taken()) sent.pop_front();
  sent.push_back(parcel);
  group_->mailbox(rank_, peer, kind).push(parcel, group_->hub().bell(receiver));
  return Work(world_, std::move(parcel));
}

ReceiveWork LocalCommunicator::irecv(int peer, ChannelKind kind,
                                     std::shared_ptr<tensor::Allocator> allocator) {
  check_open();
  check_peer("irecv's peer", peer, size());
  Inlet& inlet = inlets_[channel_index(peer, kind)];
  auto receive =
      std::make_shared<LocalReceive>(inlet, kind, group_->world_rank(peer), std::move(allocator));
  inlet.posted.push_back(receive);
  return ReceiveWork(world_, std::move(receive));
}

Work LocalCommunicator::all_reduce(tensor::Tensor tensor, ReduceOp op) {
  return start(all_reduce_call(std::move(tensor), op));
}

Work LocalCommunicator::reduce_scatter(tensor::Tensor in, tensor::Tensor out, ReduceOp op) {
  return start(reduce_scatter_call(std::move(in), std::move(out), op, size()));
}

Work LocalCommunicator::all_gather(tensor::Tensor in, tensor::Tensor out) {
  return start(all_gather_call(std::move(in), std::move(out), size()));
}

Work LocalCommunicator::broadcast(tensor::Tensor tensor, int root) {
  return start(broadcast_call(std::move(tensor), root, rank_, size()));
}

Work LocalCommunicator::barrier() {
  return start({});
}

Work LocalCommunicator::start(CollectiveCall call) {
  check_open();
  auto operation =
      std::make_shared<CollectiveOperation>(group_, collective_count_++, rank_, std::move(call));
  if (world_.advance(*operation)) return {};
  world_.add(operation);
  world_.advance_all(collectives_);
  collectives_.push_back(operation);
  return Work(world_, std::move(operation));
}

std::unique_ptr<Communicator> LocalCommunicator::split(int color, int key) {
  check_open();
  const SplitResult result = agree_on_split(*this, color, key);
  const int number = split_count_++;
  if (result.members.empty()) return nullptr;
  std::vector<int> world_ranks;
  for (const int member : result.members) world_ranks.push_back(group_->world_rank(member));
  auto group = group_->hub().group_of(group_->id(), number, color, world_ranks);
  return std::make_unique<LocalCommunicator>(world_, std::move(group), result.rank);
}

void LocalCommunicator::close() {
  check_open();
  for (auto& sent : sent_) {
    for (auto& parcel : sent) Work(world_, parcel).wait();
    sent.clear();
  }
  for (auto& collective : collectives_) Work(world_, collective).wait();
  collectives_.clear();
  barrier().wait();
  closed_ = true;
}

void LocalCommunicator::check_open() const {
  world_.check();
  if (closed_) throw CommError("[comm] this communicator is closed");
}

}  // namespace penstock::comm::local
