#include "comm/nccl/nccl_communicator.h"

#include <string>
#include <utility>

#include "comm/device/alone.h"
#include "comm/device/facts.h"
#include "comm/error.h"
#include "comm/nccl/check.h"
#include "comm/nccl/connect.h"
#include "comm/nccl/nccl.h"
#include "tensor/error.h"

namespace penstock::comm::nccl {

namespace {

using tensor::DType;
using tensor::Tensor;

// Kernels of all channels of a rank wait on the device beside each other, and beside what it
// computes: together they must leave room there.
constexpr int kMostBlocksOfChannel = 8;

// A rank begins the transfers of one communicator while those of others are still with NCCL, which
// earlier ones refuse, or confuse, on one thread.
constexpr int kOldest = NCCL_VERSION(2, 27, 0);

// Of the library that was found at run time.
void check_version() {
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  if (version >= kOldest) return;
  throw tensor::Unsupported("[nccl] expected NCCL 2.27 or newer, got version code " +
                            std::to_string(version) +
                            "; put a newer libnccl.so.2 on the loader's path, or have tensors "
                            "travel staged");
}

bool on_host(const Tensor& tensor) {
  return tensor.defined() && tensor.device() == tensor::kCpuDevice;
}

// Whatever an element is, bytes are bytes.
constexpr ncclDataType_t kByte = ncclInt8;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return ncclFloat64;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI64:
      return ncclInt64;
    case DType::kI32:
      return ncclInt32;
    case DType::kU8:
    case DType::kBool:  // minimum and maximum of 0 and 1
      return ncclUint8;
    case DType::kI8:
      return ncclInt8;
    case DType::kI16:
      break;
  }
  throw tensor::Unsupported(
      "[comm] NCCL reduces no i16; reduce i32, or have tensors travel staged");
}

ncclRedOp_t type_of(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMin ? ncclMin : ncclMax;
}

}  // namespace

bool is_built() {
  return true;
}

std::unique_ptr<Communicator> make_communicator(World& world, std::unique_ptr<Communicator> host,
                                                std::shared_ptr<tensor::Allocator> memory,
                                                Links links) {
  return std::make_unique<NcclCommunicator>(world, std::move(host), std::move(memory), links);
}

NcclCommunicator::NcclCommunicator(World& world, std::unique_ptr<Communicator> host,
                                   std::shared_ptr<tensor::Allocator> memory, Links links)
    : plane_(new Plane{.world = world,
                       .host = std::move(host),
                       .memory = std::move(memory),
                       .host_memory = tensor::make_cpu_allocator()}),
      links_(links) {
  const std::int64_t mine = world.rank();
  for (const std::int64_t member : plane_->host->all_gather_wait({&mine, 1})) {
    plane_->world_ranks.push_back(static_cast<int>(member));
  }
  const auto ends = static_cast<std::size_t>(size()) * 2;
  outlets_.resize(ends);
  for (std::size_t i = 0; i < ends; ++i) inlets_.push_back(std::make_shared<Inlet>());
  if (size() > 1) connect();
}

NcclCommunicator::~NcclCommunicator() {
  for (const auto& inlet : inlets_) inlet->posted.clear();  // which share it
  // The world may still drive lanes, but what this rank computes must not wait for them for ever.
  for (const auto& lane : lanes_) lane->world_aborted();
}

void NcclCommunicator::connect() {
  check_version();
  const std::vector<Channel> channels = channels_of(links_, size());
  const std::vector<ncclUniqueId> ids = agree_on_ids(*plane_->host, channels);
  const Tensor byte = Tensor::zeros(tensor::Context(plane_->memory), {1}, DType::kU8);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const auto [from, to, kind] = channels[i];
    if (from != rank() && to != rank()) continue;
    const bool sends = from == rank();
    auto lane = make_lane({.id = ids[i],
                           .size = 2,
                           .rank = sends ? 0 : 1,
                           .most_blocks = kMostBlocksOfChannel,
                           .text = "the " + std::string(name_of(kind)) + " channel from rank " +
                                   std::to_string(plane_->world_rank(from)) + " to rank " +
                                   std::to_string(plane_->world_rank(to))},
                          byte, [=](ncclComm_t comm, cudaStream_t stream) {
                            return sends ? ncclSend(byte.raw(), 1, kByte, 1, comm, stream)
                                         : ncclRecv(byte.raw(), 1, kByte, 0, comm, stream);
                          });
    if (sends) {
      outlets_[channel_index(to, kind)].lane = std::move(lane);
    } else {
      inlets_[channel_index(from, kind)]->lane = std::move(lane);
    }
  }
  group_ =
      make_lane({.id = ids.back(),
                 .size = size(),
                 .rank = rank(),
                 .most_blocks = 0,
                 .text = "the group of " + list_of(plane_->world_ranks)},
                byte, [=](ncclComm_t comm, cudaStream_t stream) {
                  return ncclAllReduce(byte.raw(), byte.raw(), 1, ncclUint8, ncclMax, comm, stream);
                });
}

// NCCL connects two ranks at their first transfer, and takes memory for that, for which the driver
// may wait for all that runs. So the first is here, where no other does that could need this rank.
std::shared_ptr<Lane> NcclCommunicator::make_lane(const Lane::Members& members, const Tensor& byte,
                                                  Start first) {
  auto lane = std::make_shared<Lane>(plane_->world, plane_->memory->device().index, members);
  lanes_.push_back(lane);
  lane->wait();
  lane->push({.start = std::move(first),
              .before = plane_->memory->fence(),
              .keep = {byte},
              .text = "the first transfer of " + members.text});
  lane->wait();
  return lane;
}

Work NcclCommunicator::isend(Message message, int peer, ChannelKind kind) {
  check_open();
  message = checked_message(std::move(message), peer, size(), false);
  Outlet& outlet = outlets_[channel_index(peer, kind)];
  device::MessageFacts facts{.number = outlet.sent,
                             .tensors = {},
                             .needs_grad = std::move(message.needs_grad),
                             .whole_shapes = std::move(message.whole_shapes)};
  Message carrier{.header = message.header, .tensors = {Tensor()}, .needs_grad = {}};
  std::vector<Tensor> by_nccl;
  for (Tensor& tensor : message.tensors) {
    facts.tensors.push_back({!on_host(tensor), tensor.dtype(), tensor.shape()});
    if (!on_host(tensor) && tensor.device() != plane_->memory->device()) {
      throw tensor::InvalidArgument("[isend] expected tensors on cpu or " +
                                    plane_->memory->device().to_string() + ", got " +
                                    tensor.to_string());
    }
    (on_host(tensor) ? carrier.tensors : by_nccl).push_back(std::move(tensor));
  }
  carrier.tensors.front() = device::encode(facts, plane_->host_memory);
  carrier.needs_grad.assign(carrier.tensors.size(), 0);
  auto ticket = by_nccl.empty() ? nullptr : start_send(std::move(by_nccl), peer, kind);
  ++outlet.sent;
  Work sent = plane_->host->isend(std::move(carrier), peer, kind);
  return add(std::make_shared<NcclSend>(plane_, std::move(sent), std::move(ticket), peer, kind));
}

std::shared_ptr<Ticket> NcclCommunicator::start_send(std::vector<Tensor> tensors, int peer,
                                                     ChannelKind kind) {
  auto computed = plane_->memory->fence();
  if (peer == rank()) {
    inlets_[channel_index(peer, kind)]->loops.push_back({std::move(tensors), std::move(computed)});
    return nullptr;
  }
  const std::shared_ptr<Lane>& lane = outlets_[channel_index(peer, kind)].lane;
  if (lane == nullptr) {
    throw tensor::InvalidArgument("[isend] NCCL has no channel from member " +
                                  std::to_string(rank()) + " to member " + std::to_string(peer) +
                                  "; ask for more links when the communicator is made");
  }
  std::erase_if(tensors, [](const Tensor& tensor) { return tensor.nbytes() == 0; });
  if (tensors.empty()) return nullptr;
  auto start = [tensors](ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclSuccess;
    for (const Tensor& tensor : tensors) {
      const ncclResult_t each = ncclSend(tensor.raw(), tensor.nbytes(), kByte, 1, comm, stream);
      if (each != ncclSuccess && each != ncclInProgress) result = each;
    }
    return result;
  };
  return lane->push({.start = std::move(start),
                     .before = std::move(computed),
                     .keep = std::move(tensors),
                     .text = "ncclSend of the " + std::string(name_of(kind)) + " channel to rank " +
                             std::to_string(plane_->world_rank(peer)),
                     .armed = false});
}

ReceiveWork NcclCommunicator::irecv(int peer, ChannelKind kind,
                                    std::shared_ptr<tensor::Allocator> allocator) {
  check_open();
  check_peer("irecv's peer", peer, size());
  const auto& inlet = inlets_[channel_index(peer, kind)];
  const auto& carrier_memory =
      allocator->device() == tensor::kCpuDevice ? allocator : plane_->host_memory;
  ReceiveWork inner = plane_->host->irecv(peer, kind, carrier_memory);
  auto receive = std::make_shared<NcclReceive>(plane_, inlet, std::move(inner),
                                               std::move(allocator), peer, kind);
  inlet->posted.push_back(receive);
  return ReceiveWork(plane_->world, std::move(receive));
}

Work NcclCommunicator::all_reduce(Tensor tensor, ReduceOp op) {
  if (on_host(tensor)) return plane_->host->all_reduce(std::move(tensor), op);
  CollectiveCall call = all_reduce_call(std::move(tensor), op, plane_->memory->device());
  void* const data = call.out.raw();
  const auto count = static_cast<std::size_t>(call.signature.elements);
  return start(std::move(call),
               [=, type = type_of(call.signature.dtype)](ncclComm_t comm, cudaStream_t stream) {
                 return ncclAllReduce(data, data, count, type, type_of(op), comm, stream);
               });
}

Work NcclCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  if (on_host(in)) return plane_->host->reduce_scatter(std::move(in), std::move(out), op);
  CollectiveCall call =
      reduce_scatter_call(std::move(in), std::move(out), op, size(), plane_->memory->device());
  const void* const from = call.in.raw();
  void* const to = call.out.raw();
  const auto count = static_cast<std::size_t>(call.signature.elements);
  return start(std::move(call),
               [=, type = type_of(call.signature.dtype)](ncclComm_t comm, cudaStream_t stream) {
                 return ncclReduceScatter(from, to, count, type, type_of(op), comm, stream);
               });
}

Work NcclCommunicator::all_gather(Tensor in, Tensor out) {
  if (on_host(in)) return plane_->host->all_gather(std::move(in), std::move(out));
  CollectiveCall call =
      all_gather_call(std::move(in), std::move(out), size(), plane_->memory->device());
  const void* const from = call.in.raw();
  void* const to = call.out.raw();
  const std::size_t bytes = call.in.nbytes();
  return start(std::move(call), [=](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(from, to, bytes, kByte, comm, stream);
  });
}

Work NcclCommunicator::broadcast(Tensor tensor, int root) {
  if (on_host(tensor)) return plane_->host->broadcast(std::move(tensor), root);
  CollectiveCall call =
      broadcast_call(std::move(tensor), root, rank(), size(), plane_->memory->device());
  void* const data = call.out.raw();
  const std::size_t bytes = call.out.nbytes();
  return start(std::move(call), [=](ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(data, data, bytes, kByte, root, comm, stream);
  });
}

Work NcclCommunicator::start(CollectiveCall call, Start start) {
  check_open();
  if (size() == 1) {
    run_alone(call, *plane_->memory);
    return {};
  }
  add(std::make_shared<SignatureCheck>(plane_, call.signature));
  if (call.signature.elements == 0) return {};
  auto ticket = group_->push({.start = std::move(start),
                              .before = plane_->memory->fence(),
                              .keep = {call.in, call.out},
                              .text = describe(call.signature, plane_->world_ranks)});
  auto operation = std::make_shared<NcclCollective>(plane_, std::move(call), std::move(ticket));
  return Work(plane_->world, std::move(operation));
}

Work NcclCommunicator::add(std::shared_ptr<Operation> operation) {
  Work work(plane_->world, operation);
  if (work.advance()) return {};
  plane_->world.add(operation);
  while (!started_.empty() && started_.front().use_count() == 1) started_.pop_front();
  started_.push_back(std::move(operation));
  return work;
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  check_open();
  auto part = plane_->host->split(color, key);
  if (part == nullptr) return nullptr;
  return std::make_unique<NcclCommunicator>(plane_->world, std::move(part), plane_->memory, links_);
}

void NcclCommunicator::close() {
  check_open();
  for (const auto& operation : started_) Work(plane_->world, operation).wait();
  started_.clear();
  for (const auto& inlet : inlets_) inlet->posted.clear();
  for (const auto& lane : lanes_) lane->close();
  plane_->host->close();
  closed_ = true;
}

void NcclCommunicator::check_open() const {
  if (closed_) throw CommError("[comm] this communicator is closed");
}

}  // namespace penstock::comm::nccl
