// Clique: the ranks of one emulated NCCL communicator, and the matching of their calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

namespace penstock::cuda_emulation {

struct Member;

// One call of one rank.
struct NcclCall {
  std::string name;  // "ncclSend"
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;  // of elements, as the caller gave it
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int peer = -1;  // or root; -1 where there is none

  bool is_pair() const { return name == "ncclSend" || name == "ncclRecv"; }
  std::size_t bytes() const;
  // Of the memory at `from` and `to`, in a clique of that many.
  std::size_t from_bytes(std::size_t ranks, int rank) const;
  std::size_t to_bytes(std::size_t ranks, int rank) const;
  std::string describe() const;  // "ncclSend of 8 float32 to rank 1"
};

// What one rank queues at once: a group's calls on one communicator, or a single call. None of it
// ends before all of it can.
struct Batch {
  std::shared_ptr<Member> member;
  std::vector<NcclCall> calls;
  std::size_t left = 0;  // calls that no partner has answered
};

// A rank of a clique; what ncclComm stands for.
struct Member {
  std::shared_ptr<struct Clique> clique;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool finalised = false;
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
  std::deque<std::shared_ptr<Batch>> batches;  // in the order of calls; the first may run
};

struct Clique {
  struct Posted {
    std::shared_ptr<Batch> batch;
    const NcclCall* call;
  };

  std::string id;
  std::vector<int> devices;  // by rank; -1 until it has joined
  std::map<std::pair<int, int>, std::deque<Posted>> sends, receives;  // by (from, to)
  std::vector<std::deque<Posted>> collectives;                        // by rank

  bool complete() const;
  // The batch's streams have come to it: answers what it can. What does not match becomes the text
  // that is returned.
  std::string post(const std::shared_ptr<Batch>& batch);
  // Takes back what the rank has posted.
  void withdraw(int rank);
  // What the batch still waits for, for messages.
  std::string missing(const Batch& batch) const;

 private:
  std::string match_pairs(int from, int to);
  std::string match_collectives();
  std::string run_collective(const std::vector<Posted>& posted);
};

// Lets go of all communicators and of what is queued on them: when the machine starts afresh.
void forget_communicators();

std::size_t size_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);

// into = into op from, element by element, rounded to the type each time.
void accumulate(std::byte* into, const std::byte* from, std::size_t count, ncclDataType_t type,
                ncclRedOp_t op);
// Of the mean.
void divide(std::byte* values, std::size_t count, ncclDataType_t type, int by);

}  // namespace penstock::cuda_emulation

struct ncclComm {
  std::shared_ptr<penstock::cuda_emulation::Member> member;
};
