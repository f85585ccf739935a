// What one rank does in one batch, as a stream of instructions that an engine executes, a verifier
// proves and a simulator times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/ids.h"
#include "schedule/instruction.h"
#include "schedule/stage_map.h"

namespace penstock::schedule {

// Instructions that follow one another within a step.
using Step = std::vector<Instruction>;

// What every schedule is made from. Errors name the config keys that the values come from.
struct ScheduleArgs {
  int ranks = 1;          // P, ranks along the pipe: pipeline.stages
  int micro_batches = 1;  // M, micro batches per batch: gradient_accumulation_steps
  int chunks = 1;         // v, stages owned by each rank: pipeline.chunks
  PipeRank rank{0};       // whose stream it is
  // Which rank owns which stage: pipeline.stage_map. None: the schedule's own, which is a loop
  // unless it says otherwise. With a map, `chunks` is not looked at.
  std::optional<StageMap> stage_map = {};
};

// The stream of one rank. Immutable once made, so any number of threads may read it at a time.
//
// A schedule of one's own derives from this class and implements num_steps(), do_emit() and
// do_num_pipe_buffers(); the public functions check their arguments before they call those, and
// what those return.
class Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // What the config key pipeline.schedule calls it.
  std::string_view name() const { return name_; }
  PipeRank rank() const { return args_.rank; }
  int num_ranks() const { return args_.ranks; }
  int num_micro_batches() const { return args_.micro_batches; }
  // Chunks of this rank. Ranks may own different numbers of stages.
  int num_chunks() const { return map_.num_chunks(args_.rank); }
  int num_stages() const { return map_.num_stages(); }
  const StageMap& stage_map() const { return map_; }

  virtual std::int64_t num_steps() const = 0;

  // Appends the instructions of one step to `out`, which is not cleared. Steps may be asked for in
  // any order, any number of times. ScheduleError unless 0 <= step < num_steps(), and when
  // do_emit() appends what is no instruction (of no opcode, or with operands that it does not
  // have).
  void emit(std::int64_t step, std::vector<Instruction>& out) const;

  // How many buffers the chunk's instructions use: their ids are 0 to this minus 1.
  int num_pipe_buffers(ChunkId chunk) const;

  // The stage that `chunk` of this rank is, and the rank that owns `stage`.
  StageId stage_of(ChunkId chunk) const { return map_.stage_of(args_.rank, chunk); }
  PipeRank rank_of(StageId stage) const { return map_.rank_of(stage); }

  // Identity of what the stream computes beyond name, sizes and stage map, when those do not say it
  // all: a table that came from a file. The same on every rank of the pipe.
  std::uint64_t content_hash() const { return content_hash_; }

  // Whether `chunk` of this rank is the first or the last stage of the model.
  bool is_first_stage(ChunkId chunk) const { return stage_of(chunk).value == 0; }
  bool is_last_stage(ChunkId chunk) const { return stage_of(chunk).value == num_stages() - 1; }

 protected:
  // ScheduleError if an argument is out of range, or the stage map has another number of ranks.
  Schedule(std::string_view name, const ScheduleArgs& args, std::uint64_t content_hash = 0);

 private:
  virtual void do_emit(std::int64_t step, std::vector<Instruction>& out) const = 0;
  virtual int do_num_pipe_buffers(ChunkId chunk) const = 0;

  std::string name_;
  ScheduleArgs args_;
  StageMap map_;
  std::uint64_t content_hash_;
};

// Identity of a schedule, the same on all ranks of a pipe that run the same thing: a hash of name,
// ranks, micro batches, the owner of each stage and the content hash, but not of the rank. Ranks
// compare it before a batch. Stable over processes, machines and releases: FNV-1a, 64 bits, over
// the name and a zero byte, then each number as eight bytes, least significant first.
std::uint64_t hash(const Schedule& schedule);

// The steps of a schedule as a range: `for (const std::vector<Instruction>& step : steps(s))`.
// Single pass: a step's vector is reused for the next one. Borrows the schedule.
class StepRange {
 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Step;
    using difference_type = std::ptrdiff_t;

    explicit Iterator(const Schedule& schedule) : schedule_(&schedule) { read(); }

    const Step& operator*() const { return instructions_; }
    const Step* operator->() const { return &instructions_; }
    Iterator& operator++() {
      ++step_;
      read();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return it.step_ >= it.schedule_->num_steps();
    }

   private:
    void read() {
      instructions_.clear();
      if (*this != std::default_sentinel) schedule_->emit(step_, instructions_);
    }

    const Schedule* schedule_;
    std::int64_t step_ = 0;
    Step instructions_;
  };

  explicit StepRange(const Schedule& schedule) : schedule_(&schedule) {}

  Iterator begin() const { return Iterator(*schedule_); }
  std::default_sentinel_t end() const { return {}; }
  std::size_t size() const { return static_cast<std::size_t>(schedule_->num_steps()); }

 private:
  const Schedule* schedule_;
};

inline StepRange steps(const Schedule& schedule) {
  return StepRange(schedule);
}
StepRange steps(const Schedule&&) = delete;  // the range would outlive the schedule

}  // namespace penstock::schedule
