#include "engine/trace.h"

#include <utility>

#include "schedule/io/chrome_trace.h"
#include "schedule/trace.h"

namespace penstock::engine {

namespace {

// "rank 3 (stages 1, 2, replica 0)"
std::string name_of(int rank, std::span<const schedule::StageId> stages, int data_index) {
  std::string name =
      "rank " + std::to_string(rank) + (stages.size() > 1 ? " (stages " : " (stage ");
  for (const schedule::StageId stage : stages) name += std::to_string(stage.value) + ", ";
  return name + "replica " + std::to_string(data_index) + ")";
}

}  // namespace

void TraceRecorder::start(comm::World& world) {
  events_.clear();
  world.all().barrier().wait();
  zero_ = Clock::now();
  if (world.host_size() != world.size()) return;  // each host has its own clock
  std::int64_t value = zero_.time_since_epoch().count();
  world.all().all_reduce_wait(std::span(&value, 1), comm::ReduceOp::kMin);
  zero_ = Clock::time_point(Clock::duration(value));
}

void TraceRecorder::before(std::int64_t step, const schedule::Instruction& instruction) {
  events_.push_back({step, instruction, Clock::now(), {}});
}

void TraceRecorder::after(std::int64_t, const schedule::Instruction&) {
  events_.back().end = Clock::now();
}

std::string TraceRecorder::finish(comm::World& world, std::span<const schedule::StageId> stages,
                                  int data_index) const {
  const auto seconds = [this](Clock::time_point time) {
    return std::chrono::duration<double>(time - zero_).count();
  };
  schedule::TraceRank mine{name_of(world.rank(), stages, data_index), data_index, {}};
  for (const Event& event : events_) {
    const schedule::ChunkId chunk = event.instruction.chunk;
    const schedule::StageId stage = chunk == schedule::ChunkId{}
                                        ? schedule::StageId{}
                                        : stages[static_cast<std::size_t>(chunk.value)];
    mine.spans.push_back(
        {event.instruction, stage, event.step, seconds(event.begin), seconds(event.end)});
  }
  // Files of one rank each, put together: so the format is written and read in one place.
  schedule::Trace trace{"measured", {std::move(mine)}};
  const std::string text = schedule::to_chrome_trace(trace);
  const std::vector<std::string> texts = world.all().all_gather_text(text);
  if (world.rank() != 0) return {};
  trace.ranks.clear();
  for (const std::string& of_rank : texts) {
    trace.ranks.push_back(schedule::trace_from_chrome(of_rank, "a rank's trace").ranks.at(0));
  }
  return schedule::to_chrome_trace(trace);
}

}  // namespace penstock::engine
