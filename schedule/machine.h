// Runs the streams of a pipe by the model of simulate.h; private to verify and simulate.
//
// Streams have one order per rank and per channel, so how far they get does not depend on the order
// in which ranks are tried, and times follow from maxima over what an instruction waits for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock::schedule {

// A rank's stream in one piece.
struct FlatStream {
  std::vector<Instruction> instructions;
  std::vector<std::int64_t> steps;  // of each instruction
};

FlatStream flatten(const Schedule& schedule);

// One message's two ends: positions in the streams of both ranks.
struct ChannelEnd {
  StageId edge;  // the earlier of the two stages
  MicroBatchId micro_batch;
  std::size_t position = 0;
};

// An ordered rank pair and a kind. The n-th send is for the n-th receive.
struct Channel {
  PipeRank from, to;
  bool activation = true;
  std::vector<ChannelEnd> sends, receives;
};

// What a comm instruction uses.
struct ChannelUse {
  std::int32_t channel = -1;
  std::size_t number = 0;  // which send or receive of it
};

// The streams of a pipe, and which instruction of one belongs to which of another.
class PipeStreams {
 public:
  // ScheduleError unless these are all ranks of one pipe, in rank order. Transfers that have no
  // peer (of the first or last stage, or between two stages of one rank) get no channel.
  explicit PipeStreams(std::span<const std::unique_ptr<Schedule>> schedules);

  std::size_t num_ranks() const { return streams_.size(); }
  const Schedule& schedule(std::size_t rank) const { return *schedules_[rank]; }
  const FlatStream& stream(std::size_t rank) const { return streams_[rank]; }
  const std::vector<Channel>& channels() const { return channels_; }
  ChannelUse use(std::size_t rank, std::size_t position) const { return uses_[rank][position]; }

 private:
  void add_use(std::size_t rank, std::size_t position);
  std::int32_t channel_of(PipeRank from, PipeRank to, bool activation);

  std::span<const std::unique_ptr<Schedule>> schedules_;
  std::vector<FlatStream> streams_;
  std::vector<Channel> channels_;
  std::vector<std::vector<ChannelUse>> uses_;
  std::vector<std::vector<std::int32_t>> channel_index_;  // by sender: (receiver, kind) pairs
};

// "rank 1, step 4, RecvGrad(c0 m0 b0)"
std::string place(const PipeStreams& pipe, std::size_t rank, std::size_t position);

struct Times {
  double start = 0.0;
  double end = 0.0;
};

class Machine {
 public:
  enum class Sends { kNeverWait, kWaitForReceive };

  // Without costs everything takes no time. Borrows the streams and the costs.
  Machine(const PipeStreams& pipe, Sends sends, const Costs* costs);

  // Runs until nothing can move. False when a stream has not ended.
  bool run();

  // Where a rank stands: the position that it waits at, or the end of its stream.
  std::size_t position(std::size_t rank) const { return ranks_[rank].position; }
  bool ended(std::size_t rank) const {
    return position(rank) == pipe_.stream(rank).instructions.size();
  }
  // What a rank that has not ended waits for.
  std::string reason(std::size_t rank) const;
  const std::vector<Times>& times(std::size_t rank) const { return ranks_[rank].times; }
  // When the peer reached the receive of a rank's send.
  double received_at(ChannelUse use) const { return state(use).reached[use.number]; }

 private:
  struct ChannelState {
    std::vector<double> arrivals;  // of the sends so far
    std::vector<double> reached;   // when each receive was reached, so far
    double free_at = 0.0;
    bool receiver_waits = false, sender_waits = false;
  };
  struct BufferState {
    MicroBatchId holder;
    std::vector<ChannelUse> sends;
  };
  struct RankState {
    std::size_t position = 0;
    double now = 0.0;
    bool announced = false;  // the instruction at position has been reached before
    std::vector<std::vector<BufferState>> buffers;
    std::vector<Times> times;
  };

  ChannelState& state(ChannelUse use) { return channels_[static_cast<std::size_t>(use.channel)]; }
  const ChannelState& state(ChannelUse use) const {
    return channels_[static_cast<std::size_t>(use.channel)];
  }
  void wake(std::size_t rank);
  void run_rank(std::size_t rank);
  // Runs the instruction that the rank stands at, or leaves it waiting.
  bool advance(std::size_t rank);
  bool claim(std::size_t rank, const Instruction& instruction);
  void reach(std::size_t rank, ChannelUse use);
  bool send(std::size_t rank, const Instruction& instruction, ChannelUse use);
  bool receive(std::size_t rank, ChannelUse use);
  bool synchronise(std::size_t rank);
  double cost(std::size_t rank, std::size_t position) const;
  bool overlaps_previous(std::size_t rank, std::size_t position) const;
  BufferState* buffer(std::size_t rank, const Instruction& instruction);

  const PipeStreams& pipe_;
  Sends sends_;
  const Costs* costs_;
  std::vector<RankState> ranks_;
  std::vector<ChannelState> channels_;
  std::vector<std::size_t> ready_;
  std::vector<bool> is_ready_;
  std::size_t at_optimizer_ = 0;  // ranks that have reached their OptimizerStep
  double optimizer_start_ = 0.0;
};

}  // namespace penstock::schedule
