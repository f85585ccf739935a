#include "comm/nccl/operations.h"

#include <cstring>
#include <utility>

#include "comm/device/facts.h"
#include "comm/error.h"
#include "tensor/cuda/side_stream.h"

namespace penstock::comm::nccl {

using tensor::Tensor;

NcclSend::NcclSend(std::shared_ptr<Plane> plane, Work message, std::shared_ptr<Ticket> ticket,
                   int peer, ChannelKind kind)
    : plane_(std::move(plane)),
      message_(std::move(message)),
      ticket_(std::move(ticket)),
      peer_(peer),
      kind_(kind) {}

bool NcclSend::advance() {
  if (!message_.advance()) return false;
  if (ticket_ == nullptr) return true;
  ticket_->arm();
  return ticket_->queued();
}

std::string NcclSend::describe() const {
  return "rank " + std::to_string(plane_->world_rank(peer_)) + " to receive this rank's " +
         std::string(name_of(kind_)) + " message";
}

void Inlet::match() {
  while (!posted.empty() && posted.front()->try_begin()) posted.pop_front();
}

NcclReceive::NcclReceive(std::shared_ptr<Plane> plane, std::shared_ptr<Inlet> inlet,
                         ReceiveWork inner, std::shared_ptr<tensor::Allocator> memory, int peer,
                         ChannelKind kind)
    : plane_(std::move(plane)),
      inlet_(std::move(inlet)),
      inner_(std::move(inner)),
      memory_(std::move(memory)),
      peer_(peer),
      kind_(kind) {}

bool NcclReceive::advance() {
  if (!begun_) inlet_->match();
  if (!begun_) return false;
  if (ticket_ == nullptr) return true;
  if (!ticket_->queued()) return false;
  ticket_->follow(*memory_);
  ticket_.reset();
  return true;
}

std::string NcclReceive::describe() const {
  return "a message of kind " + std::string(name_of(kind_)) + " from rank " +
         std::to_string(plane_->world_rank(peer_));
}

bool NcclReceive::try_begin() {
  if (!inner_.advance()) return false;
  Message carrier = inner_.take();
  if (carrier.tensors.empty()) throw CommError("[nccl] a message came without its facts");
  device::MessageFacts facts = device::decode(carrier.tensors.front());
  if (facts.number != inlet_->begun++) {
    throw CommError("[nccl] message " + std::to_string(facts.number) + " came where message " +
                    std::to_string(inlet_->begun - 1) + " of the channel was expected");
  }
  message_.header = carrier.header;
  message_.needs_grad = std::move(facts.needs_grad);
  message_.whole_shapes = std::move(facts.whole_shapes);
  message_.tensors.resize(facts.tensors.size());
  const bool to_device = memory_->device() != tensor::kCpuDevice;
  std::vector<Tensor*> by_nccl;
  std::size_t next = 1;  // of the carrier's tensors
  for (std::size_t i = 0; i < facts.tensors.size(); ++i) {
    const device::TensorFacts& each = facts.tensors[i];
    Tensor& tensor = message_.tensors[i];
    if (!each.on_device) {
      tensor = carrier.tensors.at(next++);
      if (!to_device) continue;
      const Tensor arrived = std::exchange(tensor, Tensor::empty(memory_, each.shape, each.dtype));
      memory_->upload(tensor.raw(), {arrived.raw(), arrived.nbytes()});
      continue;
    }
    if (!to_device) {
      throw CommError(
          "[nccl] a message with tensors on a device came to a receive with memory of the host; "
          "give irecv memory of a device");
    }
    by_nccl.push_back(&tensor);
    if (inlet_->lane != nullptr) {
      tensor = Tensor::empty(tensor::cuda::arrival_memory(inlet_->lane->stream(), memory_),
                             each.shape, each.dtype);
      tensor.storage()->charge(memory_->counters());
    }
  }
  if (!by_nccl.empty()) inlet_->lane != nullptr ? receive(by_nccl) : take_loop(by_nccl);
  begun_ = true;
  return true;
}

void NcclReceive::receive(std::vector<Tensor*> tensors) {
  struct Target {
    void* data;
    std::size_t bytes;
  };
  std::vector<Target> targets;
  for (const Tensor* tensor : tensors) {
    if (tensor->nbytes() > 0) targets.push_back({tensor->raw(), tensor->nbytes()});
  }
  if (targets.empty()) return;
  auto start = [targets = std::move(targets)](ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclSuccess;
    for (const Target& target : targets) {
      const ncclResult_t each = ncclRecv(target.data, target.bytes, ncclInt8, 0, comm, stream);
      if (each != ncclSuccess && each != ncclInProgress) result = each;
    }
    return result;
  };
  std::vector<Tensor> keep;  // for when nobody takes the message
  for (const Tensor* tensor : tensors) keep.push_back(*tensor);
  ticket_ = inlet_->lane->push({.start = std::move(start),
                                .before = nullptr,
                                .keep = std::move(keep),
                                .text = "ncclRecv: " + describe()});
}

void NcclReceive::take_loop(std::span<Tensor*> tensors) {
  Loop loop = std::move(inlet_->loops.front());
  inlet_->loops.pop_front();
  memory_->wait_for(*loop.computed);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    *tensors[i] = std::move(loop.tensors.at(i));
    tensors[i]->storage()->charge(memory_->counters());
    tensors[i]->storage()->add_user(memory_);
  }
}

bool NcclCollective::advance() {
  if (ticket_ == nullptr) return true;
  if (!ticket_->queued()) return false;
  ticket_->follow(*plane_->memory);
  ticket_.reset();
  call_.in = {};
  call_.out = {};
  return true;
}

SignatureCheck::SignatureCheck(std::shared_ptr<Plane> plane, const Signature& mine)
    : plane_(std::move(plane)), mine_(mine) {
  constexpr std::int64_t kBytes = sizeof(Signature);
  const Tensor in = Tensor::empty(plane_->host_memory, {kBytes}, tensor::DType::kU8);
  std::memcpy(in.raw(), &mine_, sizeof mine_);
  const auto members = static_cast<std::int64_t>(plane_->world_ranks.size());
  all_ = Tensor::empty(plane_->host_memory, {members, kBytes}, tensor::DType::kU8);
  gather_ = plane_->host->all_gather(in, all_);
}

bool SignatureCheck::advance() {
  if (!gather_.advance()) return false;
  for (std::size_t member = 0; member < plane_->world_ranks.size(); ++member) {
    Signature theirs;
    std::memcpy(&theirs, all_.raw() + member * sizeof theirs, sizeof theirs);
    if (theirs == mine_) continue;
    throw CommError(
        mismatch_text(plane_->world.rank(), mine_, plane_->world_ranks[member], theirs));
  }
  return true;
}

}  // namespace penstock::comm::nccl
