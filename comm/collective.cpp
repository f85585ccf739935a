#include "comm/collective.h"

#include <utility>

#include "tensor/error.h"

namespace penstock::comm {

namespace {

using tensor::DType;
using tensor::InvalidArgument;
using tensor::Tensor;

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view name_of(ReduceOp op) {
  return op == ReduceOp::kSum ? "sum" : op == ReduceOp::kMin ? "min" : "max";
}

// "[all_reduce] "
std::string where(CollectiveKind kind) {
  std::string text(1, '[');
  return text.append(name_of(kind)).append("] ");
}

void check_tensor(CollectiveKind kind, const Tensor& tensor, tensor::Device device, bool written) {
  if (!tensor.defined() || tensor.device() != device) {
    throw InvalidArgument(where(kind) + "expected a tensor on " + device.to_string() + ", got " +
                          tensor.to_string());
  }
  if (written && tensor.storage()->sealed()) {
    throw InvalidArgument(where(kind) + "would write " + tensor.to_string() +
                          ", which was sent and must not change; reduce a copy");
  }
}

void check_sum(CollectiveKind kind, const Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::kSum && tensor.dtype() == DType::kBool) {
    throw InvalidArgument(where(kind) +
                          "bool has no sum; use min (and) or max (or), or an integer dtype");
  }
}

// `whole` must hold size parts like `part`.
void check_parts(CollectiveKind kind, const Tensor& whole, const Tensor& part, int size) {
  if (whole.dtype() != part.dtype() || whole.numel() != part.numel() * size) {
    throw InvalidArgument(where(kind) + "expected " + std::to_string(size) + " parts like " +
                          part.to_string() + ", got " + whole.to_string());
  }
}

Signature signature_of(CollectiveKind kind, const Tensor& part, ReduceOp op, int root) {
  return {.kind = kind,
          .dtype = part.dtype(),
          .op = op,
          .root = root,
          .elements = static_cast<std::uint64_t>(part.numel())};
}

}  // namespace

std::string Signature::to_string() const {
  std::string text(name_of(kind));
  if (kind == CollectiveKind::kBarrier) return text;
  if (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter) {
    text += " (" + std::string(name_of(op)) + ")";
  }
  text += " of " + std::to_string(elements) + " " + std::string(tensor::name_of(dtype));
  if (kind == CollectiveKind::kBroadcast) text += " from member " + std::to_string(root);
  return text;
}

std::size_t contribution_bytes(const Signature& signature, int size) {
  const bool whole = signature.kind == CollectiveKind::kReduceScatter;
  return signature.bytes() * (whole ? static_cast<std::size_t>(size) : 1);
}

bool is_staged(const Signature& signature, int size) {
  constexpr std::size_t kStagedBytes = 16 * 1024;  // of all members together
  return contribution_bytes(signature, size) <= kStagedBytes / static_cast<std::size_t>(size);
}

CollectiveCall all_reduce_call(Tensor tensor, ReduceOp op, tensor::Device device) {
  const auto kind = CollectiveKind::kAllReduce;
  check_tensor(kind, tensor, device, true);
  check_sum(kind, tensor, op);
  return {signature_of(kind, tensor, op, -1), tensor, tensor};
}

CollectiveCall reduce_scatter_call(Tensor in, Tensor out, ReduceOp op, int size,
                                   tensor::Device device) {
  const auto kind = CollectiveKind::kReduceScatter;
  check_tensor(kind, in, device, false);
  check_tensor(kind, out, device, true);
  check_sum(kind, in, op);
  check_parts(kind, in, out, size);
  return {signature_of(kind, out, op, -1), std::move(in), std::move(out)};
}

CollectiveCall all_gather_call(Tensor in, Tensor out, int size, tensor::Device device) {
  const auto kind = CollectiveKind::kAllGather;
  check_tensor(kind, in, device, false);
  check_tensor(kind, out, device, true);
  check_parts(kind, out, in, size);
  return {signature_of(kind, in, ReduceOp::kSum, -1), std::move(in), std::move(out)};
}

CollectiveCall broadcast_call(Tensor tensor, int root, int rank, int size, tensor::Device device) {
  const auto kind = CollectiveKind::kBroadcast;
  check_peer("broadcast's root", root, size);
  check_tensor(kind, tensor, device, rank != root);
  return {signature_of(kind, tensor, ReduceOp::kSum, root), tensor, tensor};
}

std::string list_of(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string describe(const Signature& signature, std::span<const int> world_ranks) {
  return signature.to_string() + " over " + list_of(world_ranks);
}

std::string mismatch_text(int rank, const Signature& mine, int other, const Signature& theirs) {
  return "[comm] rank " + std::to_string(rank) + " called " + mine.to_string() + ", but rank " +
         std::to_string(other) + " called " + theirs.to_string() +
         "; all members must call the same collectives in the same order";
}

Message checked_message(Message message, int peer, int size, bool host_only) {
  check_peer("isend's peer", peer, size);
  if (message.needs_grad.size() != message.tensors.size()) {
    throw InvalidArgument("[isend] expected a needs_grad flag for each of " +
                          std::to_string(message.tensors.size()) + " tensors, got " +
                          std::to_string(message.needs_grad.size()));
  }
  if (!message.whole_shapes.empty() && message.whole_shapes.size() != message.tensors.size()) {
    throw InvalidArgument("[isend] expected a whole shape for each of " +
                          std::to_string(message.tensors.size()) + " tensors or none, got " +
                          std::to_string(message.whole_shapes.size()));
  }
  for (Tensor& tensor : message.tensors) {
    if (!tensor.defined() || (host_only && tensor.device() != tensor::kCpuDevice)) {
      throw InvalidArgument("[isend] expected tensors on cpu, got " + tensor.to_string());
    }
  }
  for (Tensor& tensor : message.tensors) {
    tensor.storage()->seal();
    tensor = tensor.detach();
  }
  return message;
}

void check_peer(std::string_view what, int peer, int size) {
  if (peer < 0 || peer >= size) {
    throw InvalidArgument("[comm] " + std::string(what) + " must be a rank of the group, 0 to " +
                          std::to_string(size - 1) + ", got " + std::to_string(peer));
  }
}

}  // namespace penstock::comm
