// A small simulation, independent of the library's own verifier, that runs the streams of all ranks
// together: they must end, and every transfer must find its own micro batch.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/registry.h"
#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

using enum Opcode;

enum class Sends {
  kNeverWait,  // a send starts a transfer; its buffer may be written once the peer has received
  kBlock,      // a send waits until the peer receives
};

class Pipe {
 public:
  Pipe(std::vector<std::vector<Instruction>> streams, Sends sends)
      : streams_(std::move(streams)), sends_(sends), position_(streams_.size()) {}

  // Runs until nothing can move. Empty if all streams have ended and nothing went wrong.
  std::string run() {
    for (bool moved = true; moved && fault_.empty();) {
      moved = false;
      for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
        while (fault_.empty() && !ended(rank) && try_one(rank)) moved = true;
      }
    }
    for (std::size_t rank = 0; rank < streams_.size() && fault_.empty(); ++rank) {
      if (!ended(rank)) fail(rank, "waits for ever");
    }
    if (fault_.empty() && !sent_.empty()) return "a send was never received";
    return fault_;
  }

 private:
  // From rank, to rank, activation or gradient.
  using Channel = std::tuple<std::size_t, std::size_t, bool>;

  bool ended(std::size_t rank) const { return position_[rank] == streams_[rank].size(); }
  const Instruction& next(std::size_t rank) const { return streams_[rank][position_[rank]]; }

  void fail(std::size_t rank, const std::string& what) {
    fault_ = "rank " + std::to_string(rank) + ", " + to_text(next(rank)) + ": " + what;
  }

  static bool is_activation(Opcode opcode) {
    return opcode == kSendActivation || opcode == kRecvActivation;
  }
  // The rank that this transfer is with.
  static std::size_t peer(std::size_t rank, Opcode opcode) {
    return opcode == kSendActivation || opcode == kRecvGrad ? rank + 1 : rank - 1;
  }

  // Runs the next instruction of a rank, if it need not wait.
  bool try_one(std::size_t rank) {
    const Instruction i = next(rank);
    if (is_send(i.opcode)) {
      if (sends_ == Sends::kBlock) return false;  // its receiver moves both
      sent_[{rank, peer(rank, i.opcode), is_activation(i.opcode)}].push_back(i);
    } else if (is_receive(i.opcode)) {
      if (touches_buffer_in_flight(rank, i) || !receive(rank, i)) return false;
    } else if (i.opcode == kOptimizerStep) {
      if (has_sends_in_flight(rank)) return false;
    } else if (touches_buffer_in_flight(rank, i)) {
      return false;
    }
    follow_buffers(rank, i);
    ++position_[rank];
    return true;
  }

  bool receive(std::size_t rank, const Instruction& i) {
    const std::size_t from = peer(rank, i.opcode);
    Instruction sent;
    if (sends_ == Sends::kBlock) {
      if (ended(from) || !is_send(next(from).opcode) || peer(from, next(from).opcode) != rank ||
          is_activation(next(from).opcode) != is_activation(i.opcode)) {
        return false;
      }
      sent = next(from);
      follow_buffers(from, sent);
      ++position_[from];
    } else {
      const auto channel = sent_.find({from, rank, is_activation(i.opcode)});
      if (channel == sent_.end()) return false;
      sent = channel->second.front();
      channel->second.erase(channel->second.begin());
      if (channel->second.empty()) sent_.erase(channel);
    }
    if (sent.micro_batch != i.micro_batch) fail(rank, "received " + to_text(sent));
    return true;
  }

  bool has_sends_in_flight(std::size_t rank) const {
    for (const auto& [channel, sends] : sent_) {
      if (std::get<0>(channel) == rank) return true;
    }
    return false;
  }

  bool touches_buffer_in_flight(std::size_t rank, const Instruction& i) const {
    for (const auto& [channel, sends] : sent_) {
      if (std::get<0>(channel) != rank) continue;
      for (const Instruction& send : sends) {
        if (send.buffer == i.buffer) return true;
      }
    }
    return false;
  }

  // What each buffer holds: filled by Load, RecvActivation and ForwardPass, done with after the
  // last use in the stream. Whatever touches a buffer must find its own micro batch there.
  void follow_buffers(std::size_t rank, const Instruction& i) {
    if (!has(operands(i.opcode), Operands::kBuffer)) return;
    int& holds = buffers_.try_emplace({rank, i.buffer.value}, -1).first->second;
    const bool fills = i.opcode == kLoadMicroBatch || i.opcode == kRecvActivation;
    if (fills && holds != i.micro_batch.value) {
      if (needed_.contains({rank, holds})) fail(rank, "overwrites a micro batch still needed");
      holds = i.micro_batch.value;
      needed_.insert({rank, holds});
    }
    if (holds != i.micro_batch.value) fail(rank, "finds another micro batch in its buffer");
    if (is_last_use(rank)) needed_.erase({rank, holds});
  }

  bool is_last_use(std::size_t rank) const {
    for (std::size_t later = position_[rank] + 1; later < streams_[rank].size(); ++later) {
      if (streams_[rank][later].micro_batch == next(rank).micro_batch) return false;
    }
    return true;
  }

  std::vector<std::vector<Instruction>> streams_;
  Sends sends_;
  std::vector<std::size_t> position_;
  std::map<Channel, std::vector<Instruction>> sent_;
  std::map<std::pair<std::size_t, int>, int> buffers_;
  std::set<std::pair<std::size_t, int>> needed_;
  std::string fault_;
};

std::vector<std::vector<Instruction>> streams(std::string_view name, int ranks, int micro_batches) {
  std::vector<std::vector<Instruction>> out;
  for (const auto& s : make_pipe(name, {.ranks = ranks, .micro_batches = micro_batches})) {
    out.push_back(flat(*s));
  }
  return out;
}

TEST(Deadlock, NoneInAnyPipeWithEitherMeaningOfSend) {
  for (const char* name : {"train", "inference"}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int m = 1; m <= 20; ++m) {
        for (const Sends sends : {Sends::kNeverWait, Sends::kBlock}) {
          ASSERT_EQ(Pipe(streams(name, ranks, m), sends).run(), "")
              << name << ", " << ranks << " ranks, " << m << " micro batches, sends "
              << (sends == Sends::kBlock ? "block" : "never wait");
        }
      }
    }
  }
}

// The premise: the simulation does find the faults that it looks for.
TEST(Deadlock, IsFoundWhereThereIsOne) {
  auto pipe = streams("train", 2, 4);
  ASSERT_EQ(Pipe(pipe, Sends::kBlock).run(), "");
  // Rank 0 of step 3 receives a gradient, then sends an activation: the other way round, both
  // ranks send first and block; sends that never wait still get through.
  const auto recv = std::ranges::find(pipe[0], kRecvGrad, &Instruction::opcode);
  ASSERT_EQ(recv[1].opcode, kSendActivation);
  std::swap(recv[0], recv[1]);
  EXPECT_NE(Pipe(pipe, Sends::kBlock).run().find("waits for ever"), std::string::npos);
  EXPECT_EQ(Pipe(pipe, Sends::kNeverWait).run(), "");
}

TEST(Deadlock, SimulationSeesLostAndCrossedTransfers) {
  auto pipe = streams("train", 2, 4);
  auto recv = std::ranges::find(pipe[1], kRecvActivation, &Instruction::opcode);
  recv->micro_batch = MicroBatchId{1};
  EXPECT_NE(Pipe(pipe, Sends::kNeverWait).run().find("received SendActivation(c0 m0 b0)"),
            std::string::npos);

  pipe = streams("train", 2, 4);
  std::erase_if(pipe[1], [](const Instruction& i) { return i.opcode == kRecvActivation; });
  EXPECT_NE(Pipe(pipe, Sends::kNeverWait).run(), "");
}

TEST(Deadlock, SimulationSeesTooFewBuffers) {
  auto pipe = streams("train", 4, 8);
  for (Instruction& i : pipe[0]) {
    if (has(operands(i.opcode), Operands::kBuffer)) i.buffer = BufferId{i.micro_batch.value % 3};
  }
  EXPECT_NE(Pipe(pipe, Sends::kNeverWait).run().find("overwrites a micro batch still needed"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::schedule
