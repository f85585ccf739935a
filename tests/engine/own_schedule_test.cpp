// A trainer's own schedule, from code or from a file: verified on every rank before anything is
// built, then run.
#include <fstream>
#include <mutex>

#include <gtest/gtest.h>

#include "schedule/lowering.h"
#include "schedule/rules.h"
#include "tests/engine/schedule_runs.h"

namespace penstock::testing {
namespace {

using schedule::ScheduleArgs;

TEST(OwnSchedule, IsVerifiedAndRun) {
  const Subject subject = gpt12();
  const ScheduleOutcome one_stage = train(subject, {.gas = 6});
  ScheduleRun run{.pipe = 2, .chunks = 2, .gas = 6};
  int made = 0;
  std::mutex mutex;
  run.own = [&](const ScheduleArgs& args) {
    const std::lock_guard lock(mutex);
    ++made;
    return schedule::lower("mine", schedule::zb1p_rows(args), args.rank);
  };
  expect_equal_training(train(subject, run), one_stage);
  EXPECT_EQ(made, 4);  // each rank makes both
}

// A stream that leaves out the last instructions of another: of rank 1, those of its last step but
// one.
class Cut final : public schedule::Schedule {
 public:
  Cut(std::unique_ptr<Schedule> whole, const ScheduleArgs& args)
      : Schedule("cut", args), whole_(std::move(whole)) {}
  std::int64_t num_steps() const override { return whole_->num_steps(); }

 private:
  void do_emit(std::int64_t step, std::vector<schedule::Instruction>& out) const override {
    if (rank().value == 1 && step == num_steps() - 2) return;
    whole_->emit(step, out);
  }
  int do_num_pipe_buffers(schedule::ChunkId chunk) const override {
    return whole_->num_pipe_buffers(chunk);
  }

  std::unique_ptr<Schedule> whole_;
};

// What every rank throws when its Engine is made.
std::vector<std::string> errors_of(const ScheduleRun& run) {
  return on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    return thrown_by([&] {
      engine::Engine(world, mlp(12).module(), run.config(), nullptr, {.schedule = run.own});
    });
  });
}

void expect_errors(const ScheduleRun& run, const std::string& part) {
  for (const std::string& error : errors_of(run)) {
    EXPECT_NE(error.find(part), std::string::npos) << error << "\nhas no " << part;
  }
}

TEST(OwnSchedule, ThatIsWrongIsRefusedOnEveryRank) {
  ScheduleRun run{.pipe = 2, .gas = 3};
  run.own = [](const ScheduleArgs& args) {
    return std::make_unique<Cut>(
        schedule::lower("1f1b", schedule::one_f_one_b_rows(args), args.rank), args);
  };
  expect_errors(run, "rank 1");
  run.own = [](const ScheduleArgs&) { return nullptr; };
  expect_errors(run, "the trainer's schedule for pipe rank 0 is null");
  run.own = [](ScheduleArgs args) {
    args.micro_batches = 2;
    return schedule::lower("1f1b", schedule::one_f_one_b_rows(args), args.rank);
  };
  expect_errors(run, "pipe rank 0 has num_micro_batches 2; expected 3");
  run.own = [](const ScheduleArgs& args) {
    return schedule::lower(args.rank.value == 0 ? "a" : "b", schedule::one_f_one_b_rows(args),
                           args.rank);
  };
  expect_errors(run, "pipe rank 1 differs from rank 0's in name");
}

TEST(OwnSchedule, FromAFileIsVerifiedAndRun) {
  const TemporaryFolder folder;
  const auto written = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
    return "file:" + (folder.path() / name).string();
  };
  const std::string good = written("Good.csv",
                                   "0F0,3F0,0F1,3B0,3F1,0B0,3B1,0B1\n"
                                   "1F0,2F0,1F1,2F1,2I0,1I0,2W0,1W0,2B1,1B1\n");
  const ScheduleOutcome one_stage = train(gpt12(), {.gas = 2});
  const ScheduleOutcome outcome =
      train(gpt12(), {.schedule = good, .pipe = 2, .chunks = 2, .gas = 2});
  EXPECT_EQ(outcome.stages, 4);
  expect_equal_training(outcome, one_stage);

  const ScheduleRun run{.schedule = good, .pipe = 2, .chunks = 2, .gas = 2};
  const auto with = [&run](auto change) {
    ScheduleRun changed = run;
    change(changed);
    return changed;
  };
  expect_errors(
      with([](ScheduleRun& r) { r.gas = 3; }),
      "gradient_accumulation_steps is 3, but the table " + good.substr(5) + " has 2 micro batches");
  expect_errors(with([](ScheduleRun& r) { r.chunks = 3; }), "has 4 stages");
  expect_errors(with([](ScheduleRun& r) { r.pipe = 3; }), "pipeline.stages is 3, but the table");
  expect_errors(with([&](ScheduleRun& r) { r.schedule += "x"; }), "cannot open: No such file");
  expect_errors(with([&](ScheduleRun& r) {
                  r.schedule = written("f.csv", "0F0\n1F0\n");
                  r.gas = 1;
                  r.chunks = 1;
                }),
                "has no backward");
  expect_errors(with([&](ScheduleRun& r) { r.schedule = written("t.csv", "0F0,0X0\n1F0\n"); }),
                "t.csv: [csv] line 1, column 2: \"0X0\"");
  // Both ranks wait for each other: 1F1 needs 0F1, which comes after 0B0, which needs 1B0.
  expect_errors(with([&](ScheduleRun& r) {
                  r.schedule = written("lock.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
                  r.chunks = 1;
                }),
                "rank ");
}

}  // namespace
}  // namespace penstock::testing
