#include "engine/cost_meter.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace penstock::engine {

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

std::vector<double>* CostMeter::samples_of(const schedule::Instruction& instruction) {
  using schedule::Opcode;
  if (lane(instruction.opcode) != schedule::Lane::kCompute || instruction.chunk.value < 0) {
    return nullptr;
  }
  const auto chunk = static_cast<std::size_t>(instruction.chunk.value);
  if (chunk >= chunks_.size()) chunks_.resize(chunk + 1);
  Samples& samples = chunks_[chunk];
  switch (instruction.opcode) {
    case Opcode::kForwardPass:
      return &samples.forward;
    case Opcode::kBackwardPass:
      return &samples.backward;
    case Opcode::kBackwardInput:
      return &samples.backward_input;
    default:
      return &samples.backward_weight;
  }
}

void CostMeter::before(std::int64_t, const schedule::Instruction&) {
  begin_ = Clock::now();
}

void CostMeter::after(std::int64_t, const schedule::Instruction& instruction) {
  const Clock::time_point end = Clock::now();
  if (std::vector<double>* const samples = samples_of(instruction)) {
    samples->push_back(std::chrono::duration<double>(end - begin_).count());
  }
}

PassSeconds CostMeter::seconds(schedule::ChunkId chunk) const {
  const auto index = static_cast<std::size_t>(chunk.value);
  if (index >= chunks_.size()) return {};
  const Samples& samples = chunks_[index];
  return {.forward = median(samples.forward),
          .backward = median(samples.backward),
          .backward_input = median(samples.backward_input),
          .backward_weight = median(samples.backward_weight)};
}

schedule::Costs gather_costs(const CostMeter& meter, const schedule::Schedule& schedule,
                             comm::Communicator& pipe, comm::Communicator& replicas,
                             std::span<const StageBytes> bytes) {
  constexpr std::size_t kFields = 5;
  std::vector<double> values(static_cast<std::size_t>(schedule.num_stages()) * kFields, 0.0);
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const schedule::ChunkId id(chunk);
    const PassSeconds seconds = meter.seconds(id);
    const auto at = static_cast<std::size_t>(schedule.stage_of(id).value) * kFields;
    const bool split = seconds.backward_input > 0.0;
    values[at] = seconds.forward;
    values[at + 1] = split ? seconds.backward_input : seconds.backward / 2;
    values[at + 2] = split ? seconds.backward_weight : seconds.backward / 2;
    if (bytes.empty()) continue;
    values[at + 3] = bytes[static_cast<std::size_t>(chunk)].activation;
    values[at + 4] = bytes[static_cast<std::size_t>(chunk)].message;
  }
  // Every stage has one owner in a pipe, so this sum only adds zeros to its values.
  if (pipe.size() > 1) pipe.all_reduce_wait(std::span(values), comm::ReduceOp::kSum);
  if (replicas.size() > 1) replicas.all_reduce_wait(std::span(values), comm::ReduceOp::kSum);
  schedule::Costs costs;
  for (std::size_t at = 0; at < values.size(); at += kFields) {
    schedule::StageCosts stage;
    stage.forward = values[at] / replicas.size();
    stage.backward_input = values[at + 1] / replicas.size();
    stage.backward_weight = values[at + 2] / replicas.size();
    stage.activation_bytes = values[at + 3] / replicas.size();
    stage.message_bytes = values[at + 4] / replicas.size();
    costs.stages.push_back(stage);
  }
  return costs;
}

}  // namespace penstock::engine
