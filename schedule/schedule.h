// What one rank does in one batch, as a stream of instructions that an engine executes, a verifier
// proves and a simulator times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/ids.h"
#include "schedule/instruction.h"

namespace penstock::schedule {

// Instructions that follow one another within a step.
using Step = std::vector<Instruction>;

// What every schedule is made from. Errors name the config keys that the values come from.
struct ScheduleArgs {
  int ranks = 1;          // P, ranks along the pipe: pipeline.stages
  int micro_batches = 1;  // M, micro batches per batch: gradient_accumulation_steps
  int chunks = 1;         // v, stages owned by each rank: pipeline.chunks
  PipeRank rank{0};       // whose stream it is
};

// The stream of one rank. Immutable once made, so any number of threads may read it at a time.
//
// A schedule of one's own derives from this class and implements num_steps(), do_emit() and
// do_num_pipe_buffers(); the public functions check their arguments before they call those.
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
  // Chunks of this rank; the same on every rank.
  int num_chunks() const { return args_.chunks; }
  int num_stages() const { return args_.ranks * args_.chunks; }

  virtual std::int64_t num_steps() const = 0;

  // Appends the instructions of one step to `out`, which is not cleared. Steps may be asked for in
  // any order, any number of times. ScheduleError unless 0 <= step < num_steps().
  void emit(std::int64_t step, std::vector<Instruction>& out) const;

  // How many buffers the chunk's instructions use: their ids are 0 to this minus 1.
  int num_pipe_buffers(ChunkId chunk) const;

  // The stage that `chunk` of this rank is, and the rank that owns `stage`.
  StageId stage_of(ChunkId chunk) const;
  PipeRank rank_of(StageId stage) const;

  // Whether `chunk` of this rank is the first or the last stage of the model.
  bool is_first_stage(ChunkId chunk) const { return stage_of(chunk).value == 0; }
  bool is_last_stage(ChunkId chunk) const { return stage_of(chunk).value == num_stages() - 1; }

 protected:
  // ScheduleError if an argument is out of range.
  Schedule(std::string_view name, const ScheduleArgs& args);

 private:
  virtual void do_emit(std::int64_t step, std::vector<Instruction>& out) const = 0;
  virtual int do_num_pipe_buffers(ChunkId chunk) const = 0;

  // The stage map. By default stages go round the ranks: stage = chunk * ranks + rank. Both must
  // be overridden together, and rank_of must be the same function on every rank.
  virtual StageId do_stage_of(ChunkId chunk) const;
  virtual PipeRank do_rank_of(StageId stage) const;

  void check_chunk(ChunkId chunk) const;

  std::string name_;
  ScheduleArgs args_;
};

// Identity of a schedule, the same on all ranks of a pipe that run the same thing: a hash of name,
// ranks, micro batches, chunks and the owner of each stage, but not of the rank. Ranks compare it
// before a batch. Stable over processes, machines and releases: FNV-1a, 64 bits, over the name and
// a zero byte, then each number as eight bytes, least significant first.
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
