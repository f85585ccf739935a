// Handlers of the communication lane: transfers over stage edges, and the start of reductions.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/handlers.h"
#include "tensor/error.h"

namespace penstock::engine {

namespace {

using comm::ChannelKind;
using comm::Message;

// The channel that an instruction uses, from this rank's side.
struct Edge {
  int peer;            // pipe rank of the other side
  std::int32_t stage;  // the earlier of the two stages
};

Edge next_edge(const RankState& state, const Instruction& instruction) {
  const schedule::StageId stage = state.schedule->stage_of(instruction.chunk);
  return {state.schedule->rank_of(schedule::StageId(stage.value + 1)).value, stage.value};
}

Edge previous_edge(const RankState& state, const Instruction& instruction) {
  const schedule::StageId before(state.schedule->stage_of(instruction.chunk).value - 1);
  return {state.schedule->rank_of(before).value, before.value};
}

comm::MessageHeader header(const RankState& state, const Instruction& instruction, const Edge& edge,
                           ChannelKind kind, std::uint64_t sample_hash) {
  return {state.batch.number, instruction.micro_batch.value, edge.stage, kind, sample_hash};
}

std::string describe(const comm::MessageHeader& header) {
  return std::string(name_of(header.kind)) + " of batch " + std::to_string(header.batch) +
         ", micro batch " + std::to_string(header.micro_batch) + ", edge " +
         std::to_string(header.edge);
}

// An activation brings the hash of its samples; a gradient must come back with it.
Message receive(RankState& state, const Instruction& instruction, const Edge& edge,
                ChannelKind kind, const PipeBuffer& buffer) {
  Message message = state.comms.pipe().irecv(edge.peer, kind, state.context.allocator).wait();
  const comm::MessageHeader expected =
      header(state, instruction, edge, kind,
             kind == ChannelKind::kGradient ? buffer.sample_hash : message.header.sample_hash);
  if (message.header != expected) {
    throw tensor::InternalError("[pipe] a stale or crossed message: expected the " +
                                describe(expected) + ", got the " + describe(message.header));
  }
  return message;
}

comm::Work send(RankState& state, Message message, const Edge& edge) {
  const ChannelKind kind = message.header.kind;
  ++state.sent.messages;
  for (const tensor::Tensor& tensor : message.tensors) {
    state.sent.bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return state.comms.pipe().isend(std::move(message), edge.peer, kind);
}

bool any(std::span<const std::uint8_t> flags) {
  return std::any_of(flags.begin(), flags.end(), [](std::uint8_t flag) { return flag != 0; });
}

}  // namespace

template <>
void handle<Opcode::kSendActivation>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer =
      state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  const Edge edge = next_edge(state, instruction);
  Message message;
  message.header = header(state, instruction, edge, ChannelKind::kActivation, buffer.sample_hash);
  message.needs_grad = buffer.output_needs_grad;
  message.tensors = buffer.take_outputs();
  if (state.pieces_of(instruction.chunk).outputs) {
    for (const tensor::Tensor& output : buffer.output_shells) {
      message.whole_shapes.push_back(output.shape());
    }
  }
  buffer.sending_activation = send(state, std::move(message), edge);
}

template <>
void handle<Opcode::kRecvActivation>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer =
      state.buffers.claim(instruction.chunk, instruction.micro_batch, instruction.buffer);
  Message message = receive(state, instruction, previous_edge(state, instruction),
                            ChannelKind::kActivation, buffer);
  buffer.put_inputs(message.tensors, std::move(message.needs_grad), message.header.sample_hash);
  buffer.whole_inputs = std::move(message.whole_shapes);
}

template <>
void handle<Opcode::kSendGrad>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer =
      state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  if (!any(buffer.input_needs_grad)) return;  // the receiver knows it too, from the same flags
  const Edge edge = previous_edge(state, instruction);
  Message message;
  message.header = header(state, instruction, edge, ChannelKind::kGradient, buffer.sample_hash);
  message.tensors = std::exchange(buffer.input_grads, {});
  message.needs_grad.assign(message.tensors.size(), 0);
  buffer.sending_grad = send(state, std::move(message), edge);
}

template <>
void handle<Opcode::kRecvGrad>(RankState& state, const Instruction& instruction) {
  PipeBuffer& buffer =
      state.buffers.at(instruction.chunk, instruction.micro_batch, instruction.buffer);
  if (!any(buffer.output_needs_grad)) return;
  const Edge edge = next_edge(state, instruction);
  Message message = receive(state, instruction, edge, ChannelKind::kGradient, buffer);
  buffer.put_output_grads(std::move(message.tensors));
  // The peer computed it from the activation, so that has arrived.
  buffer.sending_activation.wait();
}

template <>
void handle<Opcode::kReduceGrads>(RankState& state, const Instruction& instruction) {
  state.gradients->start(state.context, instruction.chunk);
}

template <>
void handle<Opcode::kReduceTiedGrads>(RankState& state, const Instruction&) {
  state.gradients->start_tied(state.context);
}

}  // namespace penstock::engine
