// What a trainer can see and change of the stream: observers, handlers of its own, the trace.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/trace.h"
#include "schedule/registry.h"
#include "schedule/text.h"
#include "tests/engine/fixtures.h"

namespace penstock::testing {
namespace {

using nlohmann::json;
using schedule::Instruction;

// "step: instruction" for all of a stream, from the schedule itself.
std::vector<std::string> stream_of(const std::string& name, int ranks, int micro_batches,
                                   int rank) {
  const auto schedule = schedule::make_schedule(
      name, {.ranks = ranks, .micro_batches = micro_batches, .rank = schedule::PipeRank(rank)});
  std::vector<std::string> result;
  std::int64_t step = 0;
  for (const schedule::Step& instructions : schedule::steps(*schedule)) {
    for (const Instruction& instruction : instructions) {
      result.push_back(std::to_string(step) + ": " + schedule::to_text(instruction));
    }
    ++step;
  }
  return result;
}

class Recorder final : public engine::Observer {
 public:
  void begin_stream(std::int64_t batch) override { add("begin " + std::to_string(batch)); }
  void before(std::int64_t step, const Instruction& instruction) override {
    open_ = std::to_string(step) + ": " + schedule::to_text(instruction);
  }
  void after(std::int64_t step, const Instruction& instruction) override {
    const std::string text = std::to_string(step) + ": " + schedule::to_text(instruction);
    add(text == open_ ? text : text + " after " + open_);
  }
  void end_stream() override { add("end"); }
  std::vector<std::string> take() { return std::move(seen_); }

 private:
  void add(std::string text) { seen_.push_back(std::move(text)); }
  std::string open_;
  std::vector<std::string> seen_;
};

TEST(Observers, SeeEveryInstructionInItsOrder) {
  const RunSpec run{.pipe = 3, .data = 2, .gas = 4};
  const auto by_rank = on_ranks<std::vector<std::string>>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, tie6(), config_of(run), token_samples(64));
    Recorder first, second;
    engine.add_observer(first);
    engine.add_observer(second);
    engine.train_batch();
    engine.eval_batch(*token_samples(64), {.micro_batches = 2});
    engine.remove_observer(first);
    engine.train_batch();
    std::vector<std::string> seen = first.take();
    const std::vector<std::string> more = second.take();
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), more.begin()));
    EXPECT_GT(more.size(), seen.size()) << "the removed observer still listens";
    engine.remove_observer(second);
    engine.train_batch();
    engine.close();
    return seen;
  });
  for (int rank = 0; rank < run.ranks(); ++rank) {
    const int stage = rank / run.data;
    std::vector<std::string> wanted{"begin 1"};
    std::ranges::copy(stream_of("1f1b", 3, 4, stage), std::back_inserter(wanted));
    wanted.insert(wanted.end(), {"end", "begin 2"});
    std::ranges::copy(stream_of("inference", 3, 2, stage), std::back_inserter(wanted));
    wanted.push_back("end");
    EXPECT_EQ(by_rank[static_cast<std::size_t>(rank)], wanted) << "rank " << rank;
  }
}

// --- handlers

TEST(Handlers, MayBeReplacedAndBroughtBack) {
  const RunSpec run{.pipe = 2, .gas = 3};
  const auto counts = on_ranks<int>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, mlp8(), config_of(run), mlp_samples(64));
    int calls = 0;
    engine.replace_handler(
        schedule::Opcode::kForwardPass,
        [&](const Instruction& instruction, const std::function<void()>& run_it) {
          EXPECT_EQ(instruction.opcode, schedule::Opcode::kForwardPass);
          ++calls;
          run_it();
        });
    // Gradients are forgotten just before the update.
    engine.replace_handler(schedule::Opcode::kOptimizerStep,
                           [&](const Instruction&, const std::function<void()>& run_it) {
                             for (tensor::GradSlot& slot : engine.stages().front()->slots()) {
                               std::ranges::fill(slot.grad.span<float>(), 0.0f);
                             }
                             run_it();
                           });
    const Weights start = weights_of(engine);
    EXPECT_EQ(engine.train_batch().grad_norm, 0.0);
    EXPECT_EQ(weights_of(engine), start);
    engine.replace_handler(schedule::Opcode::kOptimizerStep, nullptr);
    EXPECT_GT(engine.train_batch().grad_norm, 0.0);
    EXPECT_NE(weights_of(engine), start);
    engine.replace_handler(schedule::Opcode::kForwardPass, nullptr);
    engine.train_batch();
    engine.close();
    return calls;
  });
  EXPECT_EQ(counts, (std::vector{6, 6}));
}

// --- the trace, read by what its viewers ask for

struct Slice {
  double begin, end;
  std::string instruction;
};

// Slices of each (process, thread), in the order of their beginning; checks the events on the way.
std::map<std::pair<int, int>, std::vector<Slice>> read_trace(const std::string& text) {
  const json trace = json::parse(text);
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  std::map<std::pair<int, int>, std::vector<Slice>> slices;
  std::set<int> named_processes;
  std::set<std::pair<int, int>> named_threads;
  for (const json& event : trace.at("traceEvents")) {
    const int process = event.at("pid");
    const int thread = event.at("tid");
    const std::string phase = event.at("ph");
    const std::string name = event.at("name");
    if (phase == "M") {
      const bool sorts = name == "process_sort_index" || name == "thread_sort_index";
      EXPECT_TRUE(event.at("args").at(sorts ? "sort_index" : "name").is_primitive());
      EXPECT_TRUE(sorts || name == "process_name" || name == "thread_name") << name;
      if (name == "process_name") named_processes.insert(process);
      if (name == "thread_name") named_threads.emplace(process, thread);
      continue;
    }
    if (phase == "s" || phase == "f") continue;  // the arrows, looked at in chrome_trace_test
    EXPECT_EQ(phase, "X");
    const double begin = event.at("ts");
    const double length = event.at("dur");
    EXPECT_GE(begin, 0.0);
    EXPECT_GE(length, 0.0);
    const std::string instruction = event.at("args").at("instruction");
    EXPECT_TRUE(instruction.starts_with(name + "(")) << instruction;
    slices[{process, thread}].push_back(
        {begin, begin + length,
         std::to_string(event["args"]["step"].get<int>()) + ": " + instruction});
  }
  for (auto& [place, list] : slices) {
    EXPECT_TRUE(named_processes.contains(place.first));
    EXPECT_TRUE(named_threads.contains(place));
    std::ranges::stable_sort(list, {}, &Slice::begin);
  }
  return slices;
}

// No slice of a thread ends inside another one.
void expect_nested(const std::vector<Slice>& slices) {
  constexpr double kNanosecond = 1e-3;
  std::vector<double> open;  // ends of the slices around
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back() <= slice.begin + kNanosecond) open.pop_back();
    EXPECT_TRUE(open.empty() || slice.end <= open.back() + kNanosecond) << slice.instruction;
    open.push_back(slice.end);
  }
}

TEST(Trace, HoldsEveryInstructionAsItsViewersWantIt) {
  const RunSpec run{.pipe = 2, .data = 2, .gas = 3};
  const auto traces = on_ranks<std::string>(run.ranks(), [&](comm::World& world) {
    engine::Engine engine(world, tie6(), config_of(run), token_samples(64));
    engine.train_batch();  // before the trace
    engine::TraceRecorder recorder;
    engine.add_observer(recorder);
    recorder.start(world);
    engine.train_batch();
    engine.eval_batch(*token_samples(64), {.micro_batches = 2});
    engine.remove_observer(recorder);
    const comm::GridPosition place = engine.grid().position(world.rank());
    std::string text = recorder.finish(
        world, engine.stage_map().stages_of(schedule::PipeRank(place.pipe)), place.data);
    engine.close();
    return text;
  });
  for (std::size_t rank = 1; rank < traces.size(); ++rank) EXPECT_EQ(traces[rank], "");

  const auto slices = read_trace(traces[0]);
  std::map<int, std::vector<Slice>> by_rank;
  for (const auto& [place, list] : slices) {
    expect_nested(list);
    std::ranges::copy(list, std::back_inserter(by_rank[place.first]));
  }
  ASSERT_EQ(by_rank.size(), 4u);
  std::map<std::pair<int, std::string>, Slice> found;  // by rank and instruction
  for (auto& [rank, list] : by_rank) {
    const int stage = rank / run.data;
    std::ranges::stable_sort(list, {}, &Slice::begin);
    std::vector<std::string> wanted = stream_of("1f1b", 2, 3, stage);
    std::ranges::copy(stream_of("inference", 2, 2, stage), std::back_inserter(wanted));
    std::vector<std::string> seen;
    for (const Slice& slice : list) {
      seen.push_back(slice.instruction);
      const std::size_t begin = slice.instruction.find(' ') + 1;
      const std::size_t end = slice.instruction.rfind(" b");  // which buffer does not matter
      found.try_emplace({rank, slice.instruction.substr(begin, end - begin)}, slice);
    }
    // Two instructions may begin in one tick of the clock, so only the set is certain.
    std::ranges::sort(seen);
    std::ranges::sort(wanted);
    EXPECT_EQ(seen, wanted) << "rank " << rank;
  }
  // One clock for all: nothing is received before it is sent.
  for (int m = 0; m < 3; ++m) {
    const std::string operands = "(c0 m" + std::to_string(m);
    EXPECT_GE(found.at({2, "RecvActivation" + operands}).end,
              found.at({0, "SendActivation" + operands}).begin);
    EXPECT_GE(found.at({0, "RecvGrad" + operands}).end, found.at({2, "SendGrad" + operands}).begin);
  }
}

}  // namespace
}  // namespace penstock::testing
