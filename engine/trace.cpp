#include "engine/trace.h"

#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "schedule/opcode.h"
#include "schedule/text.h"

namespace penstock::engine {

namespace {

using nlohmann::json;

const char* lane_name(schedule::Lane lane) {
  switch (lane) {
    case schedule::Lane::kHost:
      return "host";
    case schedule::Lane::kCompute:
      return "compute";
    case schedule::Lane::kComm:
      return "comm";
  }
  return "";
}

json metadata(const char* name, int rank, int thread, const char* key, json value) {
  return {{"ph", "M"}, {"name", name}, {"pid", rank}, {"tid", thread}, {"args", {{key, value}}}};
}

// The events that name a rank and its lanes.
json process_of(int rank, std::span<const schedule::StageId> stages, int data_index) {
  std::string name =
      "rank " + std::to_string(rank) + (stages.size() > 1 ? " (stages " : " (stage ");
  for (const schedule::StageId stage : stages) name += std::to_string(stage.value) + ", ";
  name += "replica " + std::to_string(data_index) + ")";
  json events = json::array();
  events.push_back(metadata("process_name", rank, 0, "name", name));
  events.push_back(metadata("process_sort_index", rank, 0, "sort_index", rank));
  for (const auto lane : {schedule::Lane::kHost, schedule::Lane::kCompute, schedule::Lane::kComm}) {
    events.push_back(
        metadata("thread_name", rank, static_cast<int>(lane), "name", lane_name(lane)));
  }
  return events;
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
  const int rank = world.rank();
  json mine = process_of(rank, stages, data_index);
  const auto microseconds = [](Clock::duration duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
  };
  for (const Event& event : events_) {
    const schedule::Lane lane = schedule::lane(event.instruction.opcode);
    json args{{"instruction", schedule::to_text(event.instruction)}, {"step", event.step}};
    if (event.instruction.chunk.value >= 0) {
      args["stage"] = stages[static_cast<std::size_t>(event.instruction.chunk.value)].value;
    }
    if (event.instruction.micro_batch.value >= 0) {
      args["micro_batch"] = event.instruction.micro_batch.value;
    }
    mine.push_back({{"ph", "X"},
                    {"name", schedule::name(event.instruction.opcode)},
                    {"cat", lane_name(lane)},
                    {"pid", rank},
                    {"tid", static_cast<int>(lane)},
                    {"ts", microseconds(event.begin - zero_)},
                    {"dur", microseconds(event.end - event.begin)},
                    {"args", std::move(args)}});
  }
  const std::vector<std::string> texts = world.all().all_gather_text(mine.dump());
  if (rank != 0) return {};
  json events = json::array();
  for (const std::string& text : texts) {
    for (json& event : json::parse(text)) events.push_back(std::move(event));
  }
  return json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace penstock::engine
