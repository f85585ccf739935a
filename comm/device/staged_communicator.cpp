#include "comm/device/staged_communicator.h"

#include <cstdint>
#include <utility>

#include "comm/device/alone.h"
#include "comm/error.h"

namespace penstock::comm::device {

using tensor::Tensor;

StagedCommunicator::StagedCommunicator(World& world, std::unique_ptr<Communicator> host,
                                       Messages messages, std::shared_ptr<tensor::Allocator> memory,
                                       std::shared_ptr<tensor::Allocator> pinned)
    : stage_(new Stage{world, std::move(host), std::move(memory), std::move(pinned), {}}),
      messages_(messages) {
  const std::int64_t mine = world.rank();
  for (const std::int64_t rank : stage_->host->all_gather_wait({&mine, 1})) {
    stage_->world_ranks.push_back(static_cast<int>(rank));
  }
  for (int i = 0; i < size() * 2; ++i) sends_.push_back(std::make_shared<Line>());
}

Work StagedCommunicator::isend(Message message, int peer, ChannelKind kind) {
  if (messages_ == Messages::kHandedOver) {
    return stage_->host->isend(std::move(message), peer, kind);
  }
  message = checked_message(std::move(message), peer, size(), false);
  check_open();
  return start(std::make_shared<StagedSend>(stage_, std::move(message), peer, kind),
               sends_[channel_index(peer, kind)]);
}

ReceiveWork StagedCommunicator::irecv(int peer, ChannelKind kind,
                                      std::shared_ptr<tensor::Allocator> allocator) {
  if (messages_ == Messages::kHandedOver || allocator->device() == tensor::kCpuDevice) {
    return stage_->host->irecv(peer, kind, std::move(allocator));
  }
  check_peer("irecv's peer", peer, size());
  ReceiveWork inner = stage_->host->irecv(peer, kind, stage_->pinned);
  return ReceiveWork(
      stage_->world,
      std::make_shared<StagedReceive>(stage_, std::move(inner), std::move(allocator), peer, kind));
}

tensor::Device StagedCommunicator::device_of(const Tensor& tensor) const {
  const bool on_host = tensor.defined() && tensor.device() == tensor::kCpuDevice;
  return on_host ? tensor::kCpuDevice : stage_->memory->device();
}

Work StagedCommunicator::all_reduce(Tensor tensor, ReduceOp op) {
  const tensor::Device device = device_of(tensor);
  return start(all_reduce_call(std::move(tensor), op, device));
}

Work StagedCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  const tensor::Device device = device_of(in);
  return start(reduce_scatter_call(std::move(in), std::move(out), op, size(), device));
}

Work StagedCommunicator::all_gather(Tensor in, Tensor out) {
  const tensor::Device device = device_of(in);
  return start(all_gather_call(std::move(in), std::move(out), size(), device));
}

Work StagedCommunicator::broadcast(Tensor tensor, int root) {
  const tensor::Device device = device_of(tensor);
  return start(broadcast_call(std::move(tensor), root, rank(), size(), device));
}

Work StagedCommunicator::barrier() {
  return start({});
}

Work StagedCommunicator::start(CollectiveCall call) {
  check_open();
  const bool on_device = call.out.defined() && call.out.device() != tensor::kCpuDevice;
  if (on_device && size() == 1) {
    run_alone(call, *stage_->memory);
    return {};
  }
  return start(std::make_shared<StagedCollective>(stage_, std::move(call)), collectives_);
}

Work StagedCommunicator::start(std::shared_ptr<Delayed> operation,
                               const std::shared_ptr<Line>& line) {
  line->push(operation);
  Work work(stage_->world, operation);
  if (work.advance()) return {};
  stage_->world.add(operation);
  while (!started_.empty() && started_.front()->completed()) started_.pop_front();
  started_.push_back(std::move(operation));
  return work;
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color, int key) {
  check_open();
  wait_for_all();  // of the host's collectives this one comes last
  auto part = stage_->host->split(color, key);
  if (part == nullptr) return nullptr;
  return std::make_unique<StagedCommunicator>(stage_->world, std::move(part), messages_,
                                              stage_->memory, stage_->pinned);
}

void StagedCommunicator::close() {
  check_open();
  wait_for_all();
  stage_->host->close();
  closed_ = true;
}

void StagedCommunicator::check_open() const {
  if (closed_) throw CommError("[comm] this communicator is closed");
}

void StagedCommunicator::wait_for_all() {
  for (const auto& operation : std::exchange(started_, {})) {
    Work(stage_->world, operation).wait();
  }
}

}  // namespace penstock::comm::device
