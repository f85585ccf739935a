#include "engine/memory_meter.h"

#include <algorithm>
#include <span>
#include <utility>

#include "schedule/opcode.h"

namespace penstock::engine {

using schedule::BufferId;
using schedule::ChunkId;
using schedule::Instruction;
using schedule::Opcode;
using tensor::Storage;

namespace {

std::int64_t bytes_of(std::span<const model::MicroBatch> micro_batches) {
  std::int64_t bytes = 0;
  for (const model::MicroBatch& data : micro_batches) {
    for (const auto* tensors : {&data.inputs, &data.labels}) {
      for (const tensor::Tensor& tensor : *tensors) {
        bytes += static_cast<std::int64_t>(tensor.nbytes());
      }
    }
    for (const auto& [name, tensor] : data.named) {
      bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

bool is_pass(const Instruction& instruction) {
  return lane(instruction.opcode) == schedule::Lane::kCompute && instruction.chunk.value >= 0;
}

// The chunk of this rank whose buffer a pass of `chunk` changes too; none if there is none.
ChunkId chunk_before(const schedule::Schedule& schedule, ChunkId chunk) {
  if (schedule.is_first_stage(chunk)) return {};
  const schedule::StageId before(schedule.stage_of(chunk).value - 1);
  if (schedule.rank_of(before) != schedule.rank()) return {};
  return schedule.stage_map().chunk_of(before);
}

}  // namespace

void MemoryMeter::begin_stream(std::int64_t) {
  weights_ = weight_storages(state_.stages);
  records_.clear();
  counted_.clear();
  sum_ = {};
  sending_.clear();
  const schedule::Schedule& schedule = *state_.schedule;
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    records_.emplace_back(static_cast<std::size_t>(schedule.num_pipe_buffers(ChunkId(chunk))));
  }
  measured_.host_stash = bytes_of(state_.batch.loaded);
}

void MemoryMeter::before(std::int64_t, const Instruction& instruction) {
  if (instruction.opcode == Opcode::kSendActivation || instruction.opcode == Opcode::kSendGrad) {
    begin_transfer(instruction);
  }
}

void MemoryMeter::after(std::int64_t, const Instruction& instruction) {
  if (timing_ == SendTiming::kMeasured) poll_transfers();
  if (instruction.buffer.value >= 0) {
    look_at_buffers(instruction);
  } else if (instruction.opcode == Opcode::kOptimizerStep) {
    forget_buffers();
  }
  sum_.note();
}

void MemoryMeter::look_at_buffers(const Instruction& instruction) {
  const ChunkId before =
      is_pass(instruction) ? chunk_before(*state_.schedule, instruction.chunk) : ChunkId();
  const BufferId other =
      before.value >= 0 ? state_.buffers.find(before, instruction.micro_batch) : BufferId();
  // All that was there goes first: memory that one of the two has freed may be a storage of the
  // other by now.
  forget(instruction.chunk, instruction.buffer);
  if (other.value >= 0) forget(before, other);
  count(instruction.chunk, instruction.buffer);
  if (other.value >= 0) count(before, other);

  const PipeBuffer& buffer = state_.buffers.slot(instruction.chunk, instruction.buffer);
  if (instruction.opcode == Opcode::kRecvGrad &&
      std::ranges::find(buffer.output_needs_grad, 1) != buffer.output_needs_grad.end()) {
    end_transfer(record(instruction.chunk, instruction.buffer).activation);
  }
}

void MemoryMeter::end_stream() {
  measured_.last = sum_.peak();
  measured_.workspace = *state_.workspace;
  if (measured_.last.total() > measured_.peak.total()) measured_.peak = measured_.last;
  forget_buffers();
}

// Nothing is held or under way any more.
void MemoryMeter::forget_buffers() {
  for (std::vector<Record>& buffers : records_) {
    for (Record& entry : buffers) {
      end_transfer(entry.activation);
      end_transfer(entry.gradient);
      for (const auto& [storage, holding] : entry.held) drop(storage, holding);
      entry.held.clear();
    }
  }
}

void MemoryMeter::forget(ChunkId chunk, BufferId buffer) {
  Record& entry = record(chunk, buffer);
  for (const auto& [storage, holding] : entry.held) drop(storage, holding);
  entry.held.clear();
  const std::int32_t micro_batch = state_.buffers.slot(chunk, buffer).micro_batch;
  if (std::exchange(entry.micro_batch, micro_batch) == micro_batch) return;
  // It was claimed for another micro batch, and that waits for what was sent from it.
  end_transfer(entry.activation);
  end_transfer(entry.gradient);
}

void MemoryMeter::count(ChunkId chunk, BufferId buffer) {
  Record& entry = record(chunk, buffer);
  for_each_tensor(state_.buffers.slot(chunk, buffer),
                  [&](BufferPart, Holding holding, const tensor::Tensor& tensor) {
                    const Storage* storage = tensor.storage().get();
                    if (weights_.contains(storage)) return;
                    entry.held.emplace_back(storage, holding);
                    hold(*storage, holding);
                  });
}

// Before the instruction runs: afterwards the receiver may have everything already.
void MemoryMeter::begin_transfer(const Instruction& instruction) {
  const bool activation = instruction.opcode == Opcode::kSendActivation;
  const PipeBuffer& buffer = state_.buffers.slot(instruction.chunk, instruction.buffer);
  Record& entry = record(instruction.chunk, instruction.buffer);
  Transfer& transfer = activation ? entry.activation : entry.gradient;
  for (const tensor::Tensor& tensor : activation ? buffer.outputs : buffer.input_grads) {
    if (!tensor.defined() || weights_.contains(tensor.storage().get())) continue;
    transfer.push_back({tensor.storage(), tensor.storage().get()});
    hold(*tensor.storage(), Holding::kInFlight);
  }
  if (timing_ == SendTiming::kMeasured) {
    sending_.emplace_back(instruction.chunk, instruction.buffer);
  }
}

void MemoryMeter::end_transfer(Transfer& transfer) {
  for (const Sent& sent : transfer) drop(sent.storage, Holding::kInFlight);
  transfer.clear();
}

void MemoryMeter::poll_transfers() {
  std::erase_if(sending_, [&](const auto& place) {
    PipeBuffer& buffer = state_.buffers.slot(place.first, place.second);
    Record& entry = record(place.first, place.second);
    if (buffer.sending_activation.done()) end_transfer(entry.activation);
    if (buffer.sending_grad.done()) end_transfer(entry.gradient);
    return entry.activation.empty() && entry.gradient.empty();
  });
}

void MemoryMeter::hold(const Storage& storage, Holding holding) {
  Counted& counted = counted_[&storage];
  counted.bytes = static_cast<std::int64_t>(storage.bytes());
  sum_.hold(counted.holders, counted.bytes, holding);
}

void MemoryMeter::drop(const Storage* storage, Holding holding) {
  const auto found = counted_.find(storage);
  sum_.drop(found->second.holders, found->second.bytes, holding);
  if (found->second.holders == Holders{}) counted_.erase(found);
}

}  // namespace penstock::engine
