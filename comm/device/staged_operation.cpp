#include "comm/device/staged_operation.h"

#include <utility>

namespace penstock::comm::device {

using tensor::Tensor;

namespace {

bool on_device(const Tensor& tensor) {
  return tensor.defined() && tensor.device().type == tensor::DeviceType::kCuda;
}

}  // namespace

Delayed::~Delayed() {
  try {
    if (copied_ != nullptr) copied_->wait();
  } catch (...) {  // the device has failed, and writes no more
  }
}

Tensor Delayed::start_download(const Tensor& tensor) {
  copies_.push_back(Tensor::empty(stage_->pinned, tensor.shape(), tensor.dtype()));
  const Tensor& copy = copies_.back();
  stage_->memory->start_download({copy.raw(), copy.nbytes()}, tensor.raw());
  copied_ = stage_->memory->fence();
  return copy;
}

bool Delayed::try_begin() {
  if (copied_ != nullptr && !copied_->reached()) return false;
  copied_.reset();
  copies_.clear();
  inner_ = begin();
  begun_ = true;
  return true;
}

bool Delayed::advance() {
  if (!begun_) line_->advance();
  if (!finishing_ && begun_ && inner_.advance()) {
    finishing_ = true;
    finish();
    done_ = true;
  }
  return done_;
}

void Line::push(const std::shared_ptr<Delayed>& operation) {
  operation->line_ = shared_from_this();
  waiting_.push_back(operation);
}

void Line::advance() {
  // What begins on the host may have to wait there for an earlier one, and come by here again.
  if (advancing_) return;
  struct Within {
    explicit Within(bool& flag) : advancing(flag) { advancing = true; }
    ~Within() { advancing = false; }
    bool& advancing;
  } const within(advancing_);
  while (!waiting_.empty()) {
    const std::shared_ptr<Delayed> next = waiting_.front().lock();
    if (next != nullptr && !next->try_begin()) break;
    waiting_.pop_front();
  }
}

StagedCollective::StagedCollective(std::shared_ptr<Stage> stage, CollectiveCall call)
    : Delayed(std::move(stage)), call_(std::move(call)), in_(call_.in), out_(call_.out) {
  if (!on_device(call_.out)) return;
  const CollectiveKind kind = call_.signature.kind;
  in_ = kind != CollectiveKind::kBroadcast || is_root() ? start_download(call_.in) : Tensor();
  const bool in_place =
      in_.defined() && call_.in.raw() == call_.out.raw() && call_.in.nbytes() == call_.out.nbytes();
  out_ = in_place ? in_ : Tensor::empty(this->stage().pinned, call_.out.shape(), call_.out.dtype());
}

std::string StagedCollective::describe() const {
  return comm::describe(call_.signature, stage().world_ranks);
}

bool StagedCollective::is_root() const {
  return call_.signature.root == stage().host->rank();
}

Work StagedCollective::begin() {
  Communicator& host = *stage().host;
  switch (call_.signature.kind) {
    case CollectiveKind::kAllReduce:
      return host.all_reduce(out_, call_.signature.op);
    case CollectiveKind::kReduceScatter:
      return host.reduce_scatter(in_, out_, call_.signature.op);
    case CollectiveKind::kAllGather:
      return host.all_gather(in_, out_);
    case CollectiveKind::kBroadcast:
      return host.broadcast(out_, call_.signature.root);
    case CollectiveKind::kBarrier:
      return host.barrier();
  }
  return {};
}

void StagedCollective::finish() {
  if (on_device(call_.out) && !is_root()) {
    stage().memory->upload(call_.out.raw(), {out_.raw(), out_.nbytes()});
  }
  call_.in = {};
  call_.out = {};
  in_ = {};
  out_ = {};
}

StagedSend::StagedSend(std::shared_ptr<Stage> stage, Message message, int peer, ChannelKind kind)
    : Delayed(std::move(stage)),
      message_(std::move(message)),
      originals_(message_.tensors),
      peer_(peer),
      kind_(kind) {
  for (Tensor& tensor : message_.tensors) {
    if (on_device(tensor)) tensor = start_download(tensor);
  }
}

std::string StagedSend::describe() const {
  return "rank " + std::to_string(stage().world_rank(peer_)) + " to receive this rank's " +
         std::string(name_of(kind_)) + " message";
}

Work StagedSend::begin() {
  originals_.clear();
  return stage().host->isend(std::move(message_), peer_, kind_);
}

StagedReceive::StagedReceive(std::shared_ptr<Stage> stage, ReceiveWork inner,
                             std::shared_ptr<tensor::Allocator> memory, int peer, ChannelKind kind)
    : stage_(std::move(stage)),
      inner_(std::move(inner)),
      memory_(std::move(memory)),
      peer_(peer),
      kind_(kind) {}

Message StagedReceive::take() {
  Message message = inner_.take();
  for (Tensor& tensor : message.tensors) {
    const Tensor arrived = tensor;
    tensor = Tensor::empty(memory_, arrived.shape(), arrived.dtype());
    memory_->upload(tensor.raw(), {arrived.raw(), arrived.nbytes()});
  }
  return message;
}

std::string StagedReceive::describe() const {
  return "a message of kind " + std::string(name_of(kind_)) + " from rank " +
         std::to_string(stage_->world_rank(peer_));
}

}  // namespace penstock::comm::device
