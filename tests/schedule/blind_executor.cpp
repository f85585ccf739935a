#include "tests/schedule/blind_executor.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace penstock::schedule {
namespace {

using Value = std::uint64_t;

// Mixes values so that no two computations give the same one by accident.
Value mix(Value a, Value b, Value c) {
  Value x = 0x9e3779b97f4a7c15u;
  for (const Value v : {a, b, c}) {
    x ^= v + 0x9e3779b97f4a7c15u + (x << 6) + (x >> 2);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
  }
  return x | 1;  // never 0, which means "nothing here"
}

Value datum(int m) {
  return mix(1, 0, static_cast<Value>(m));
}
Value forward(int stage, Value input, Value labels) {
  return mix(2, static_cast<Value>(stage), mix(3, input, labels));
}
Value input_gradient(int stage, Value activation, Value gradient) {
  return mix(4, static_cast<Value>(stage), mix(5, activation, gradient));
}
Value weight_gradient(int stage, Value activation, Value gradient) {
  return mix(6, static_cast<Value>(stage), mix(7, activation, gradient));
}

// What the streams must have computed: for each stage, one weight gradient (forward only: one
// output) of each micro batch.
std::vector<std::multiset<Value>> expected(int stages, int micro_batches, bool trains) {
  std::vector<std::multiset<Value>> results(static_cast<std::size_t>(stages));
  for (int m = 0; m < micro_batches; ++m) {
    std::vector<Value> inputs, outputs;
    Value x = datum(m);
    for (int s = 0; s < stages; ++s) {
      inputs.push_back(x);
      outputs.push_back(x = forward(s, x, s == stages - 1 ? datum(m) : 0));
    }
    Value gradient = 0;
    for (int s = stages - 1; s >= 0; --s) {
      const auto i = static_cast<std::size_t>(s);
      results[i].insert(trains ? weight_gradient(s, outputs[i], gradient) : outputs[i]);
      gradient = input_gradient(s, outputs[i], gradient);
    }
  }
  return results;
}

struct Slot {
  int holder = -1;
  Value input = 0, labels = 0, output = 0, output_gradient = 0, input_gradient = 0;
  std::vector<std::pair<std::size_t, std::size_t>> sends;  // channel and number
};

struct Channel {
  std::vector<Value> sent;
  std::size_t received = 0;
};

class Run {
 public:
  Run(const Schedule& shape, const std::vector<Flat>& streams, bool trains, std::uint64_t seed)
      : map_(shape.stage_map()),
        micro_batches_(shape.num_micro_batches()),
        streams_(streams),
        trains_(trains),
        random_(seed),
        positions_(streams.size(), 0),
        gradients_(static_cast<std::size_t>(map_.num_stages())),
        reduced_(static_cast<std::size_t>(map_.num_stages())),
        outputs_(static_cast<std::size_t>(map_.num_stages())) {}

  std::string run() {
    std::vector<std::size_t> order;
    for (std::size_t r = 0; r < streams_.size(); ++r) order.push_back(r);
    for (bool moved = true; moved;) {
      moved = false;
      std::ranges::shuffle(order, random_);
      for (const std::size_t rank : order) {
        // A random number of instructions, so that ranks drift apart.
        for (auto n = random_() % 8 + 1; n > 0 && !ended(rank) && step(rank); --n) moved = true;
      }
    }
    for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
      if (!ended(rank)) return "rank " + std::to_string(rank) + " waits for ever";
    }
    for (const auto& [key, channel] : channels_) {
      if (channel.received != channel.sent.size()) return "a message is never received";
    }
    const auto want = expected(map_.num_stages(), micro_batches_, trains_);
    if (!trains_) return outputs_ == want ? "" : "wrong outputs";
    if (updated_ != streams_.size()) return "not every rank updated once";
    return reduced_ == want ? "" : "wrong gradients";
  }

 private:
  using Key = std::tuple<int, int, bool>;

  bool ended(std::size_t rank) const { return positions_[rank] == streams_[rank].size(); }

  Channel& channel(int from, int to, bool activation) { return channels_[{from, to, activation}]; }

  bool step(std::size_t rank) {
    const Instruction i = streams_[rank][positions_[rank]];
    if (!execute(static_cast<int>(rank), i)) return false;
    ++positions_[rank];
    return true;
  }

  // False when the instruction has to wait.
  bool execute(int rank, const Instruction& i) {
    switch (i.opcode) {
      case Opcode::kReduceGrads: {
        const auto stage = index_of(rank, i);
        reduced_[stage].insert(gradients_[stage].begin(), gradients_[stage].end());
        gradients_[stage].clear();
        return true;
      }
      case Opcode::kReduceTiedGrads:
        return true;
      case Opcode::kOptimizerStep:
        ++updated_;
        return true;
      default:
        return on_slot(rank, i, slots_[{rank, i.chunk.value, i.buffer.value}]);
    }
  }

  std::size_t index_of(int rank, const Instruction& i) const {
    return static_cast<std::size_t>(map_.stage_of(PipeRank{rank}, i.chunk).value);
  }

  bool on_slot(int rank, const Instruction& i, Slot& slot) {
    const int stage = static_cast<int>(index_of(rank, i));
    const bool near_before = stage > 0 && map_.rank_of(StageId{stage - 1}).value == rank;
    const bool fills = i.opcode == Opcode::kLoadMicroBatch || i.opcode == Opcode::kRecvActivation ||
                       (i.opcode == Opcode::kForwardPass && near_before);
    if (fills && slot.holder != i.micro_batch.value) {
      for (const auto& [key, number] : slot.sends) {
        if (channel_list_[key]->received <= number) return false;
      }
      slot = {};
      slot.holder = i.micro_batch.value;
    }
    switch (i.opcode) {
      case Opcode::kLoadMicroBatch:
        if (stage == 0) slot.input = datum(i.micro_batch.value);
        if (stage == map_.num_stages() - 1) slot.labels = datum(i.micro_batch.value);
        return true;
      case Opcode::kSendActivation:
        return send(rank, stage + 1, true, slot, slot.output);
      case Opcode::kSendGrad:
        return send(rank, stage - 1, false, slot, slot.input_gradient);
      case Opcode::kRecvActivation:
        return receive(rank, stage - 1, true, slot.input);
      case Opcode::kRecvGrad:
        return receive(rank, stage + 1, false, slot.output_gradient);
      case Opcode::kForwardPass:
        if (near_before) slot.input = near(rank, stage - 1, i.micro_batch.value).output;
        slot.output = forward(stage, slot.input, slot.labels);
        outputs_[static_cast<std::size_t>(stage)].insert(slot.output);
        slot.input = slot.labels = 0;
        return true;
      default:
        return backward(rank, i, slot, stage, near_before);
    }
  }

  bool backward(int rank, const Instruction& i, Slot& slot, int stage, bool near_before) {
    if (i.opcode != Opcode::kBackwardWeight) {
      slot.input_gradient = input_gradient(stage, slot.output, slot.output_gradient);
      if (near_before) {
        near(rank, stage - 1, i.micro_batch.value).output_gradient = slot.input_gradient;
      }
    }
    if (i.opcode != Opcode::kBackwardInput) {
      gradients_[static_cast<std::size_t>(stage)].insert(
          weight_gradient(stage, slot.output, slot.output_gradient));
      slot.output = slot.output_gradient = 0;
    }
    return true;
  }

  // The slot of the micro batch on another chunk of the rank; a dead one if there is none.
  Slot& near(int rank, int stage, int m) {
    const int chunk = map_.chunk_of(StageId{stage}).value;
    for (auto& [key, slot] : slots_) {
      if (std::get<0>(key) == rank && std::get<1>(key) == chunk && slot.holder == m) return slot;
    }
    return nowhere_ = {};
  }

  bool send(int rank, int to_stage, bool activation, Slot& slot, Value value) {
    if (to_stage < 0 || to_stage >= map_.num_stages()) return false;
    Channel& c = channel(rank, map_.rank_of(StageId{to_stage}).value, activation);
    const auto found = std::ranges::find(channel_list_, &c);
    slot.sends.emplace_back(found - channel_list_.begin(), c.sent.size());
    if (found == channel_list_.end()) channel_list_.push_back(&c);
    c.sent.push_back(value);
    return true;
  }

  bool receive(int rank, int from_stage, bool activation, Value& into) {
    if (from_stage < 0 || from_stage >= map_.num_stages()) return false;
    Channel& c = channel(map_.rank_of(StageId{from_stage}).value, rank, activation);
    if (c.received == c.sent.size()) return false;
    into = c.sent[c.received++];
    return true;
  }

  const StageMap& map_;
  int micro_batches_;
  const std::vector<Flat>& streams_;
  bool trains_;
  std::mt19937_64 random_;
  std::vector<std::size_t> positions_;
  std::map<std::tuple<int, int, int>, Slot> slots_;  // rank, chunk, buffer
  std::map<Key, Channel> channels_;
  std::vector<Channel*> channel_list_;
  std::vector<std::multiset<Value>> gradients_, reduced_, outputs_;  // by stage
  std::size_t updated_ = 0;
  Slot nowhere_;
};

}  // namespace

std::string run_blindly(const Schedule& shape, const std::vector<Flat>& streams, bool trains,
                        std::uint64_t seed) {
  return Run(shape, streams, trains, seed).run();
}

}  // namespace penstock::schedule
