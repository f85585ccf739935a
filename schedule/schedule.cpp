#include "schedule/schedule.h"

#include <string>

#include "schedule/args.h"
#include "schedule/fnv.h"

namespace penstock::schedule {
namespace {

// `what` 7 is not one of the `count` that there are.
[[noreturn]] void throw_out_of_range(std::string_view name, const char* what, std::int64_t value,
                                     std::int64_t count) {
  refuse(name, std::string(what) + " " + std::to_string(value) + " does not exist; " +
                   (count == 0 ? "there are none" : "expected 0 to " + std::to_string(count - 1)));
}

}  // namespace

Schedule::Schedule(std::string_view name, const ScheduleArgs& args, std::uint64_t content_hash)
    : name_(name), args_(args), map_(given_map(name, args)), content_hash_(content_hash) {
  if (args_.rank.value < 0 || args_.rank.value >= args_.ranks) {
    throw_out_of_range(name_, "pipe rank", args_.rank.value, args_.ranks);
  }
}

void Schedule::emit(std::int64_t step, std::vector<Instruction>& out) const {
  const std::int64_t count = num_steps();
  if (step < 0 || step >= count) throw_out_of_range(name_, "step", step, count);
  const std::size_t before = out.size();
  do_emit(step, out);
  if (out.size() < before) {
    refuse(name_, "do_emit() of step " + std::to_string(step) +
                      " took instructions away that were in `out`; expected it to append alone");
  }
  for (std::size_t i = before; i < out.size(); ++i) {
    if (well_formed(out[i])) continue;
    refuse(name_, "instruction " + std::to_string(i - before) + " of step " + std::to_string(step) +
                      " is none: its opcode does not exist, or it has an operand that the opcode "
                      "does not have; make instructions with instruction()");
  }
}

int Schedule::num_pipe_buffers(ChunkId chunk) const {
  if (chunk.value < 0 || chunk.value >= num_chunks()) {
    throw_out_of_range(name_, "chunk", chunk.value, num_chunks());
  }
  const int buffers = do_num_pipe_buffers(chunk);
  if (buffers < 0) {
    refuse(name_, "it has " + std::to_string(buffers) +
                      " pipe buffers; expected 0 or more from do_num_pipe_buffers()");
  }
  return buffers;
}

std::uint64_t hash(const Schedule& schedule) {
  Fnv fnv;
  fnv.add(schedule.name());
  fnv.add_byte(0);
  fnv.add_number(schedule.num_ranks());
  fnv.add_number(schedule.num_micro_batches());
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    fnv.add_number(schedule.rank_of(StageId{stage}).value);
  }
  fnv.add_number(static_cast<std::int64_t>(schedule.content_hash()));
  return fnv.value();
}

}  // namespace penstock::schedule
