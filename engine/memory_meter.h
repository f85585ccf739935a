// Measures what the pipe buffers of a rank hold while its streams run.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/measured_memory.h"
#include "engine/observer.h"
#include "engine/pipe_buffers.h"
#include "engine/pipe_memory.h"
#include "engine/rank_state.h"
#include "engine/weight_storages.h"

namespace penstock::engine {

// Added to the executor of a rank, it looks after each instruction at the buffers that this one
// touched. Belongs to the rank's thread.
class MemoryMeter final : public Observer {
 public:
  // Borrows the state, whose buffers it lists and whose stages' weights it leaves out, and whose
  // passes begin to note their workspace.
  MemoryMeter(RankState& state, SendTiming timing) : state_(state), timing_(timing) {
    state_.workspace = 0;
  }

  void begin_stream(std::int64_t batch) override;
  void before(std::int64_t step, const schedule::Instruction& instruction) override;
  void after(std::int64_t step, const schedule::Instruction& instruction) override;
  void end_stream() override;

  const MeasuredMemory& measured() const { return measured_; }

 private:
  struct Counted {
    std::int64_t bytes = 0;
    Holders holders{};
  };
  // A storage under way, which its receiver may have freed. Weak: the address stays taken, so that
  // no other storage gets it, but the memory is not held.
  struct Sent {
    std::weak_ptr<const tensor::Storage> address_holder;
    const tensor::Storage* storage;
  };
  using Transfer = std::vector<Sent>;
  // What was counted for one buffer.
  struct Record {
    std::int32_t micro_batch = -1;
    std::vector<std::pair<const tensor::Storage*, Holding>> held;
    Transfer activation, gradient;
  };

  Record& record(schedule::ChunkId chunk, schedule::BufferId buffer) {
    return records_[static_cast<std::size_t>(chunk.value)][static_cast<std::size_t>(buffer.value)];
  }
  void forget_buffers();
  // Counts again what the instruction's buffer holds, and that of the chunk that hands over.
  void look_at_buffers(const schedule::Instruction& instruction);
  void forget(schedule::ChunkId chunk, schedule::BufferId buffer);
  void count(schedule::ChunkId chunk, schedule::BufferId buffer);
  void begin_transfer(const schedule::Instruction& instruction);
  void end_transfer(Transfer& transfer);
  // Ends the transfers that are seen to be over.
  void poll_transfers();
  void hold(const tensor::Storage& storage, Holding holding);
  void drop(const tensor::Storage* storage, Holding holding);

  RankState& state_;
  SendTiming timing_;
  StorageSet weights_;
  std::unordered_map<const tensor::Storage*, Counted> counted_;
  std::vector<std::vector<Record>> records_;                               // by chunk and buffer
  std::vector<std::pair<schedule::ChunkId, schedule::BufferId>> sending_;  // may have transfers
  PipeBytesSum sum_;
  MeasuredMemory measured_;
};

}  // namespace penstock::engine
