#include "comm/mpi/mpi_communicator.h"

#include <utility>

#include "comm/mpi/mpi_world.h"
#include "comm/mpi/tags.h"
#include "comm/split.h"

namespace penstock::comm::mpi {

namespace {

void drop_completed(MpiWorld& world, std::deque<std::shared_ptr<Operation>>& operations) {
  while (!operations.empty() && world.advance(*operations.front())) operations.pop_front();
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiWorld& world, std::int64_t id, std::vector<int> world_ranks,
                                 int rank)
    : world_(world), id_(id), inlets_(world_ranks.size() * 2) {
  auto members = std::make_shared<Members>();
  members->comm = world.collective_comm();
  members->world_ranks = std::move(world_ranks);
  members->rank = rank;
  members_ = std::move(members);
}

MpiCommunicator::~MpiCommunicator() {
  if (!closed_) withdraw();
}

Channel MpiCommunicator::channel(int peer, ChannelKind kind) const {
  return {.comm = world_.message_comm(),
          .peer = members_->world_ranks[static_cast<std::size_t>(peer)],
          .tag = message_tag(id_, kind),
          .kind = kind};
}

Work MpiCommunicator::isend(Message message, int peer, ChannelKind kind) {
  check_open();
  message = checked_message(std::move(message), peer, size(), true);
  auto operation = std::make_shared<SendOperation>(std::move(message), channel(peer, kind));
  world_.add(operation);
  drop_completed(world_, sends_);
  sends_.push_back(operation);
  return Work(world_, std::move(operation));
}

ReceiveWork MpiCommunicator::irecv(int peer, ChannelKind kind,
                                   std::shared_ptr<tensor::Allocator> allocator) {
  check_open();
  check_peer("irecv's peer", peer, size());
  std::shared_ptr<Inlet>& inlet = inlets_[channel_index(peer, kind)];
  if (inlet == nullptr) {
    inlet = std::make_shared<Inlet>(channel(peer, kind));
    world_.add_inlet(inlet);
  }
  auto operation = std::make_shared<MpiReceive>(inlet, std::move(allocator));
  inlet->post(operation);
  world_.add(operation);
  return ReceiveWork(world_, std::move(operation));
}

Work MpiCommunicator::all_reduce(tensor::Tensor tensor, ReduceOp op) {
  return start(all_reduce_call(std::move(tensor), op));
}

Work MpiCommunicator::reduce_scatter(tensor::Tensor in, tensor::Tensor out, ReduceOp op) {
  return start(reduce_scatter_call(std::move(in), std::move(out), op, size()));
}

Work MpiCommunicator::all_gather(tensor::Tensor in, tensor::Tensor out) {
  return start(all_gather_call(std::move(in), std::move(out), size()));
}

Work MpiCommunicator::broadcast(tensor::Tensor tensor, int root) {
  return start(broadcast_call(std::move(tensor), root, rank(), size()));
}

Work MpiCommunicator::barrier() {
  return start({});
}

Work MpiCommunicator::start(CollectiveCall call) {
  check_open();
  drop_completed(world_, collectives_);
  if (collectives_.size() >= static_cast<std::size_t>(kCollectiveWindow)) {
    Work(world_, collectives_.front()).wait();  // its tag is needed again
    drop_completed(world_, collectives_);
  }
  auto operation = std::make_shared<CollectiveOperation>(
      members_, collective_tag(id_, collective_count_++), std::move(call), host_memory());
  if (world_.advance(*operation)) return {};
  world_.add(operation);
  collectives_.push_back(operation);
  return Work(world_, std::move(operation));
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  check_open();
  // Two groups that share a rank differ in their number: it is above all that any member has used.
  const SplitResult result = agree_on_split(*this, color, key, world_.next_group());
  world_.reserve_groups(result.largest_id + result.groups);
  if (result.members.empty()) return nullptr;
  std::vector<int> world_ranks;
  for (const int member : result.members) {
    world_ranks.push_back(members_->world_ranks[static_cast<std::size_t>(member)]);
  }
  return std::make_unique<MpiCommunicator>(world_, result.largest_id + result.group,
                                           std::move(world_ranks), result.rank);
}

void MpiCommunicator::close() {
  check_open();
  for (const auto& send : sends_) Work(world_, send).wait();
  for (const auto& collective : collectives_) Work(world_, collective).wait();
  barrier().wait();
  withdraw();
  closed_ = true;
}

void MpiCommunicator::check_open() {
  world_.check();
  if (closed_) throw CommError("[comm] this communicator is closed");
}

void MpiCommunicator::withdraw() noexcept {
  if (!world_.usable()) return;
  for (std::shared_ptr<Inlet>& inlet : inlets_) {
    if (inlet == nullptr) continue;
    inlet->close();
    world_.remove_inlet(*inlet);
    inlet.reset();
  }
}

}  // namespace penstock::comm::mpi
