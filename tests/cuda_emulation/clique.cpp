#include "tests/cuda_emulation/clique.h"

#include <algorithm>
#include <cstring>

namespace penstock::cuda_emulation {

namespace {

std::string who(int rank, const NcclCall& call) {
  return "rank " + std::to_string(rank) + " called " + call.describe();
}

// Of the calls of one collective, all but their memory must be equal.
bool agrees(const NcclCall& a, const NcclCall& b) {
  return a.name == b.name && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.peer == b.peer;
}

}  // namespace

std::size_t NcclCall::bytes() const {
  return count * size_of(type);
}

std::size_t NcclCall::from_bytes(std::size_t ranks, int rank) const {
  if (name == "ncclRecv" || (name == "ncclBroadcast" && rank != peer)) return 0;
  return name == "ncclReduceScatter" ? bytes() * ranks : bytes();
}

std::size_t NcclCall::to_bytes(std::size_t ranks, int rank) const {
  if (name == "ncclSend" || (name == "ncclReduce" && rank != peer)) return 0;
  return name == "ncclAllGather" ? bytes() * ranks : bytes();
}

std::string NcclCall::describe() const {
  std::string text = name + " of " + std::to_string(count) + " " + name_of(type);
  if (name == "ncclSend") text += " to rank " + std::to_string(peer);
  if (name == "ncclRecv") text += " from rank " + std::to_string(peer);
  if (!is_pair() && peer >= 0) text += " with root " + std::to_string(peer);
  return text;
}

bool Clique::complete() const {
  return std::find(devices.begin(), devices.end(), -1) == devices.end();
}

std::string Clique::post(const std::shared_ptr<Batch>& batch) {
  const int rank = batch->member->rank;
  std::string wrong;
  for (const NcclCall& call : batch->calls) {
    if (call.name == "ncclSend") sends[{rank, call.peer}].push_back({batch, &call});
    if (call.name == "ncclRecv") receives[{call.peer, rank}].push_back({batch, &call});
    if (!call.is_pair()) collectives[static_cast<std::size_t>(rank)].push_back({batch, &call});
  }
  for (const NcclCall& call : batch->calls) {
    if (!wrong.empty()) break;
    if (call.name == "ncclSend") wrong = match_pairs(rank, call.peer);
    if (call.name == "ncclRecv") wrong = match_pairs(call.peer, rank);
    if (!call.is_pair()) wrong = match_collectives();
  }
  return wrong;
}

std::string Clique::match_pairs(int from, int to) {
  std::deque<Posted>& out = sends[{from, to}];
  std::deque<Posted>& in = receives[{from, to}];
  while (!out.empty() && !in.empty()) {
    const Posted sent = out.front(), received = in.front();
    if (sent.call->count != received.call->count || sent.call->type != received.call->type) {
      return "in communicator " + id + " " + who(from, *sent.call) + ", and " +
             who(to, *received.call);
    }
    if (sent.call->bytes() > 0) {
      std::memmove(received.call->to, sent.call->from, sent.call->bytes());
    }
    --sent.batch->left;
    --received.batch->left;
    out.pop_front();
    in.pop_front();
  }
  return {};
}

std::string Clique::match_collectives() {
  while (std::none_of(collectives.begin(), collectives.end(),
                      [](const std::deque<Posted>& posted) { return posted.empty(); })) {
    std::vector<Posted> posted;
    for (std::size_t rank = 0; rank < collectives.size(); ++rank) {
      posted.push_back(collectives[rank].front());
      if (!agrees(*posted.front().call, *posted.back().call)) {
        return "in communicator " + id + " " + who(0, *posted.front().call) + ", and " +
               who(static_cast<int>(rank), *posted.back().call);
      }
      collectives[rank].pop_front();
    }
    const std::string wrong = run_collective(posted);
    if (!wrong.empty()) return wrong;
    for (const Posted& each : posted) --each.batch->left;
  }
  return {};
}

// Inputs are copied first, since they may lie in what is written.
std::string Clique::run_collective(const std::vector<Posted>& posted) {
  const NcclCall& any = *posted.front().call;
  const std::size_t ranks = posted.size(), bytes = any.bytes();
  if (bytes == 0) return {};
  std::vector<std::vector<std::byte>> inputs;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::byte* from = posted[rank].call->from;
    inputs.emplace_back(from, from + any.from_bytes(ranks, static_cast<int>(rank)));
  }
  const auto write = [&](std::size_t rank, std::size_t at, const std::byte* data,
                         std::size_t size) { std::memcpy(posted[rank].call->to + at, data, size); };
  if (any.name == "ncclBroadcast") {
    const auto& root = inputs[static_cast<std::size_t>(any.peer)];
    for (std::size_t rank = 0; rank < ranks; ++rank) write(rank, 0, root.data(), bytes);
    return {};
  }
  if (any.name == "ncclAllGather") {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < ranks; ++i) write(rank, i * bytes, inputs[i].data(), bytes);
    }
    return {};
  }
  std::vector<std::byte> sum = inputs.front();
  const std::size_t count = sum.size() / size_of(any.type);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    accumulate(sum.data(), inputs[rank].data(), count, any.type, any.op);
  }
  if (any.op == ncclAvg) divide(sum.data(), count, any.type, static_cast<int>(ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (any.name == "ncclReduce" && static_cast<int>(rank) != any.peer) continue;
    write(rank, 0, sum.data() + (any.name == "ncclReduceScatter" ? rank * bytes : 0), bytes);
  }
  return {};
}

void Clique::withdraw(int rank) {
  const auto is_mine = [&](const Posted& posted) { return posted.batch->member->rank == rank; };
  for (auto& [pair, posted] : sends) std::erase_if(posted, is_mine);
  for (auto& [pair, posted] : receives) std::erase_if(posted, is_mine);
  collectives[static_cast<std::size_t>(rank)].clear();
}

std::string Clique::missing(const Batch& batch) const {
  std::string text = "in communicator " + id + " for rank " + std::to_string(batch.member->rank) +
                     " (of " + std::to_string(devices.size()) + ") the answer to ";
  for (std::size_t i = 0; i < batch.calls.size(); ++i) {
    text += (i == 0 ? "" : " and ") + batch.calls[i].describe();
  }
  return text;
}

}  // namespace penstock::cuda_emulation
