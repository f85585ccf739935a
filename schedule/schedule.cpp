#include "schedule/schedule.h"

#include <limits>
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

}  // namespace

Schedule::Schedule(std::string_view name, const ScheduleArgs& args) : name_(name), args_(args) {
  require_positive(name_, "pipeline.stages", args_.ranks);
  require_positive(name_, "gradient_accumulation_steps", args_.micro_batches);
  require_positive(name_, "pipeline.chunks", args_.chunks);
  if (args_.chunks > std::numeric_limits<std::int32_t>::max() / args_.ranks) {
    throw ScheduleError(where(name_) + "pipeline.stages " + std::to_string(args_.ranks) +
                        " times pipeline.chunks " + std::to_string(args_.chunks) +
                        " is more stages than an id can name; lower one of the two");
  }
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
  check_chunk(chunk);
  return do_num_pipe_buffers(chunk);
}

StageId Schedule::stage_of(ChunkId chunk) const {
  check_chunk(chunk);
  return do_stage_of(chunk);
}

PipeRank Schedule::rank_of(StageId stage) const {
  if (stage.value < 0 || stage.value >= num_stages()) {
    throw_out_of_range(name_, "stage", stage.value, num_stages());
  }
  return do_rank_of(stage);
}

StageId Schedule::do_stage_of(ChunkId chunk) const {
  return StageId{chunk.value * args_.ranks + args_.rank.value};
}

PipeRank Schedule::do_rank_of(StageId stage) const {
  return PipeRank{stage.value % args_.ranks};
}

void Schedule::check_chunk(ChunkId chunk) const {
  if (chunk.value < 0 || chunk.value >= args_.chunks) {
    throw_out_of_range(name_, "chunk", chunk.value, args_.chunks);
  }
}

std::uint64_t hash(const Schedule& schedule) {
  std::uint64_t state = 14695981039346656037u;
  const auto add_byte = [&state](unsigned char byte) { state = (state ^ byte) * 1099511628211u; };
  const auto add_number = [&add_byte](std::int32_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    for (int shift = 0; shift < 64; shift += 8) {
      add_byte(static_cast<unsigned char>(bits >> shift));
    }
  };
  for (const char c : schedule.name()) add_byte(static_cast<unsigned char>(c));
  add_byte(0);
  add_number(schedule.num_ranks());
  add_number(schedule.num_micro_batches());
  add_number(schedule.num_chunks());
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    add_number(schedule.rank_of(StageId{stage}).value);
  }
  return state;
}

}  // namespace penstock::schedule
