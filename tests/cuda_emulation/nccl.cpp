// The calls of the emulated NCCL.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include "tests/cuda_emulation/call.h"
#include "tests/cuda_emulation/clique.h"
#include "tests/cuda_emulation/fault.h"

namespace emulation = penstock::cuda_emulation;

namespace {

using emulation::Batch;
using emulation::Clique;
using emulation::Lock;
using emulation::Machine;
using emulation::Member;
using emulation::NcclCall;

constexpr const char* kCommunicator = "NCCL communicator";

// The group that the calling thread has open.
struct Group {
  struct Entry {
    std::shared_ptr<Member> member;
    cudaStream_t stream;
    NcclCall call;
  };
  int depth = 0;
  std::vector<Entry> calls;
  std::vector<std::shared_ptr<Member>> joining;
};

Group& group() {
  thread_local Group group;
  return group;
}

// Cliques that are still being joined, by id.
std::map<std::string, std::shared_ptr<Clique>>& forming() {
  static std::map<std::string, std::shared_ptr<Clique>> cliques;
  return cliques;
}

// Every rank of every communicator that may still be in use.
std::vector<std::weak_ptr<Member>>& all_members() {
  static std::vector<std::weak_ptr<Member>> members;
  return members;
}

ncclResult_t wait_for_members(Machine& machine, Lock& lock,
                              const std::vector<std::shared_ptr<Member>>& joining) {
  ncclResult_t result = ncclSuccess;
  for (const std::shared_ptr<Member>& member : joining) {
    if (!member->blocking) {
      if (!member->clique->complete()) result = ncclInProgress;
      continue;
    }
    const bool joined = machine.wait_until(
        lock, [&] { return member->clique->complete(); },
        "the start of communicator " + member->clique->id + " at rank " +
            std::to_string(member->rank));
    if (!joined) return ncclUnhandledCudaError;
  }
  return result;
}

// Queues the batch: its stream comes to it, then stands until all of it is answered.
void enqueue(Machine& machine, cudaStream_t stream, const std::shared_ptr<Batch>& batch,
             std::vector<std::byte*> blocks) {
  const std::shared_ptr<Member> member = batch->member;
  batch->left = batch->calls.size();
  member->batches.push_back(batch);
  const std::string what =
      batch->calls.size() == 1
          ? batch->calls.front().describe()
          : "a group of " + std::to_string(batch->calls.size()) + " NCCL calls";
  auto begin = std::make_shared<emulation::Operation>();
  begin->what = what;
  begin->locked = true;
  begin->waits_for = "the earlier calls on its communicator";
  begin->ready = [member, batch] { return member->aborted || member->batches.front() == batch; };
  begin->run = [member, batch] {
    if (member->aborted || member->error != ncclSuccess) return;
    const std::string wrong = member->clique->post(batch);
    if (!wrong.empty()) throw emulation::Fault(wrong);
  };
  auto end = std::make_shared<emulation::Operation>();
  end->what = what;
  end->locked = true;
  end->blocks = std::move(blocks);
  end->waits_for = member->clique->missing(*batch);
  end->ready = [member, batch] { return member->aborted || batch->left == 0; };
  end->run = [member, batch] { std::erase(member->batches, batch); };
  machine.enqueue(*stream, std::move(begin));
  machine.enqueue(*stream, std::move(end));
}

// Queues what the calling thread has gathered, one batch for each communicator.
ncclResult_t flush(Machine& machine, std::vector<Group::Entry> entries) {
  while (!entries.empty()) {
    const Group::Entry first = entries.front();
    auto batch = std::make_shared<Batch>();
    batch->member = first.member;
    emulation::Operation touched;
    const std::size_t ranks = first.member->clique->devices.size();
    for (const Group::Entry& entry : entries) {
      if (entry.member != first.member) continue;
      if (entry.stream != first.stream) {
        machine.fault("one NCCL group uses a communicator on two streams, which is not emulated");
        return ncclInvalidUsage;
      }
      const NcclCall& call = entry.call;
      const int rank = first.member->rank;
      if (!machine.touch(touched, call.from, call.from_bytes(ranks, rank)) ||
          !machine.touch(touched, call.to, call.to_bytes(ranks, rank))) {
        machine.fault(call.describe() + " was given memory that is not in one block of a device");
        return ncclInvalidArgument;
      }
      batch->calls.push_back(call);
    }
    std::erase_if(entries, [&](const Group::Entry& entry) { return entry.member == first.member; });
    enqueue(machine, first.stream, batch, std::move(touched.blocks));
  }
  return ncclSuccess;
}

// The frame of all calls that may fail for a fault.
template <class Body>
ncclResult_t call_nccl(Body&& body) {
  Machine& machine = Machine::get();
  Lock lock = machine.lock();
  if (machine.sticky() != cudaSuccess) return ncclUnhandledCudaError;
  const ncclResult_t result = std::forward<Body>(body)(machine, lock);
  return machine.sticky() != cudaSuccess ? ncclUnhandledCudaError : result;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, NcclCall call) {
  return call_nccl([&](Machine& machine, Lock&) {
    if (comm == nullptr || !is_usable(machine, stream)) return ncclInvalidArgument;
    const std::shared_ptr<Member> member = comm->member;
    const int ranks = static_cast<int>(member->clique->devices.size());
    const bool has_peer =
        call.is_pair() || call.name == "ncclReduce" || call.name == "ncclBroadcast";
    if (has_peer && (call.peer < 0 || call.peer >= ranks)) return ncclInvalidArgument;
    if (stream->device != member->device) return ncclInvalidArgument;
    if (!member->clique->complete() || member->finalised) return ncclInvalidUsage;
    if (member->error != ncclSuccess) return member->error;
    if (stream->capture != nullptr) {
      emulation::break_capture(*stream);
      return ncclInvalidUsage;
    }
    ++machine.counters().nccl_calls[call.name];
    if (group().depth > 0) {
      group().calls.push_back({member, stream, std::move(call)});
      return ncclSuccess;
    }
    return flush(machine, {{member, stream, std::move(call)}});
  });
}

NcclCall make(const char* name, const void* from, void* to, std::size_t count, ncclDataType_t type,
              ncclRedOp_t op, int peer) {
  return {name, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), count, type, op,
          peer};
}

}  // namespace

void emulation::forget_communicators() {
  for (const std::weak_ptr<Member>& weak : all_members()) {
    const std::shared_ptr<Member> member = weak.lock();
    if (member == nullptr) continue;
    member->aborted = true;
    member->batches.clear();
    member->clique->withdraw(member->rank);
  }
  all_members().clear();
  forming().clear();
}

void emulation::break_communicators(int device) {
  Lock lock = Machine::get().lock();
  for (const std::weak_ptr<Member>& weak : all_members()) {
    const std::shared_ptr<Member> member = weak.lock();
    if (member != nullptr && member->device == device) member->error = ncclSystemError;
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return call_nccl([&](Machine&, Lock&) {
    static int last = 0;
    std::memset(id, 0, sizeof(*id));
    std::snprintf(id->internal, sizeof(id->internal), "%d", ++last);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = nullptr;
  return call_nccl([&](Machine& machine, Lock& lock) {
    if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    std::shared_ptr<Clique>& clique = forming()[id.internal];
    if (clique == nullptr) {
      clique = std::make_shared<Clique>();
      clique->id = id.internal;
      clique->devices.assign(static_cast<std::size_t>(ranks), -1);
      clique->collectives.resize(static_cast<std::size_t>(ranks));
    }
    const auto index = static_cast<std::size_t>(rank);
    if (clique->devices.size() != static_cast<std::size_t>(ranks) || clique->devices[index] >= 0) {
      return ncclInvalidArgument;
    }
    const int device = emulation::current_device();
    if (std::find(clique->devices.begin(), clique->devices.end(), device) !=
        clique->devices.end()) {
      return ncclInvalidUsage;  // NCCL's "Duplicate GPU detected"
    }
    auto member = std::make_shared<Member>();
    member->clique = clique;
    member->rank = rank;
    member->device = device;
    member->blocking = config == nullptr || config->blocking != 0;
    clique->devices[index] = device;
    if (clique->complete()) forming().erase(id.internal);
    ++machine.objects()[kCommunicator];
    *comm = new ncclComm{member};
    all_members().push_back(member);
    machine.notify();
    if (group().depth > 0) {
      group().joining.push_back(member);
      return ncclSuccess;
    }
    return wait_for_members(machine, lock, {member});
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group().depth == 0) return ncclInvalidUsage;
  if (--group().depth > 0) return ncclSuccess;
  const auto calls = std::exchange(group().calls, {});
  const auto joining = std::exchange(group().joining, {});
  return call_nccl([&](Machine& machine, Lock& lock) {
    const ncclResult_t result = flush(machine, calls);
    return result != ncclSuccess ? result : wait_for_members(machine, lock, joining);
  });
}

// ---- the end of a communicator

namespace {

bool is_idle(const Member& member) {
  return member.batches.empty() || member.aborted;
}

// Gives the handle back. The member lives on in what is queued and in the clique.
void close(Machine& machine, ncclComm_t comm) {
  --machine.objects()[kCommunicator];
  delete comm;
}

}  // namespace

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return call_nccl([&](Machine& machine, Lock& lock) {
    const std::shared_ptr<Member> member = comm->member;
    if (member->finalised) return ncclInvalidUsage;
    member->finalised = true;
    if (!member->blocking) return is_idle(*member) ? ncclSuccess : ncclInProgress;
    machine.wait_until(
        lock, [&] { return is_idle(*member); }, "ncclCommFinalize");
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Machine& machine = Machine::get();
  Lock lock = machine.lock();
  const std::shared_ptr<Member> member = comm->member;
  machine.wait_until(
      lock, [&] { return is_idle(*member); }, "ncclCommDestroy");
  close(machine, comm);
  return machine.sticky() == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  Machine& machine = Machine::get();
  Lock lock = machine.lock();
  comm->member->aborted = true;
  comm->member->clique->withdraw(comm->member->rank);
  close(machine, comm);
  machine.notify();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Machine& machine = Machine::get();
  Lock lock = machine.lock();
  const Member& member = *comm->member;
  *error = member.error;
  if (machine.sticky() != cudaSuccess) *error = ncclUnhandledCudaError;
  const bool busy = !member.clique->complete() || (member.finalised && !is_idle(member));
  if (*error == ncclSuccess && busy) {
    machine.advance(lock);
    *error = ncclInProgress;
  }
  return ncclSuccess;
}

// ---- communication

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, make("ncclSend", from, nullptr, count, type, ncclSum, peer));
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, make("ncclRecv", nullptr, to, count, type, ncclSum, peer));
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, make("ncclAllReduce", from, to, count, type, op, -1));
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, make("ncclReduce", from, to, count, type, op, root));
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t received,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return add(comm, stream, make("ncclReduceScatter", from, to, received, type, op, -1));
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t sent, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, make("ncclAllGather", from, to, sent, type, ncclSum, -1));
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, make("ncclBroadcast", from, to, count, type, ncclSum, root));
}
