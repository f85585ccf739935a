#include "schedule/schedule.h"

#include <string>

namespace penstock::schedule {
namespace {

std::string where(std::string_view name) {
  return "[schedule " + std::string(name) + "] ";
}

void require_positive(std::string_view name, const char* key, int value) {
  if (value >= 1) return;
  throw ScheduleError(where(name) + key + " is " + std::to_string(value) + "; expected 1 or more");
}

// `what` 7 is not one of the `count` that there are.
[[noreturn]] void throw_out_of_range(std::string_view name, const char* what, std::int64_t value,
                                     std::int64_t count) {
  std::string message = where(name) + what + " " + std::to_string(value) + " does not exist; ";
  message += count == 0 ? "there are none" : "expected 0 to " + std::to_string(count - 1);
  throw ScheduleError(message);
}

StageMap map_of(std::string_view name, const ScheduleArgs& args) {
  require_positive(name, "pipeline.stages", args.ranks);
  require_positive(name, "gradient_accumulation_steps", args.micro_batches);
  if (!args.stage_map) {
    require_positive(name, "pipeline.chunks", args.chunks);
    return StageMap::loop(args.ranks, args.chunks);
  }
  if (args.stage_map->num_ranks() != args.ranks) {
    throw ScheduleError(
        where(name) + "pipeline.stage_map has " + std::to_string(args.stage_map->num_ranks()) +
        " ranks; expected as many as pipeline.stages, " + std::to_string(args.ranks));
  }
  return *args.stage_map;
}

}  // namespace

Schedule::Schedule(std::string_view name, const ScheduleArgs& args, std::uint64_t content_hash)
    : name_(name), args_(args), map_(map_of(name, args)), content_hash_(content_hash) {
  if (args_.rank.value < 0 || args_.rank.value >= args_.ranks) {
    throw_out_of_range(name_, "pipe rank", args_.rank.value, args_.ranks);
  }
}

void Schedule::emit(std::int64_t step, std::vector<Instruction>& out) const {
  const std::int64_t count = num_steps();
  if (step < 0 || step >= count) throw_out_of_range(name_, "step", step, count);
  do_emit(step, out);
}

int Schedule::num_pipe_buffers(ChunkId chunk) const {
  if (chunk.value < 0 || chunk.value >= num_chunks()) {
    throw_out_of_range(name_, "chunk", chunk.value, num_chunks());
  }
  const int buffers = do_num_pipe_buffers(chunk);
  if (buffers < 0) {
    throw ScheduleError(where(name_) + "it has " + std::to_string(buffers) +
                        " pipe buffers; expected 0 or more from do_num_pipe_buffers()");
  }
  return buffers;
}

std::uint64_t hash(const Schedule& schedule) {
  std::uint64_t state = 14695981039346656037u;
  const auto add_byte = [&state](unsigned char byte) { state = (state ^ byte) * 1099511628211u; };
  const auto add_number = [&add_byte](std::uint64_t bits) {
    for (int shift = 0; shift < 64; shift += 8) {
      add_byte(static_cast<unsigned char>(bits >> shift));
    }
  };
  for (const char c : schedule.name()) add_byte(static_cast<unsigned char>(c));
  add_byte(0);
  add_number(static_cast<std::uint64_t>(schedule.num_ranks()));
  add_number(static_cast<std::uint64_t>(schedule.num_micro_batches()));
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    add_number(static_cast<std::uint64_t>(schedule.rank_of(StageId{stage}).value));
  }
  add_number(schedule.content_hash());
  return state;
}

}  // namespace penstock::schedule
