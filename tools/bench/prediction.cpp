// penstock-bench prediction: the makespan and idle times that the simulator predicts from measured
// costs, beside those that are then measured.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "engine/cost_meter.h"
#include "engine/engine.h"
#include "model/data/in_memory_source.h"
#include "model/data/repeating_source.h"
#include "model/data/text_source.h"
#include "model/layers/linear.h"
#include "model/losses/mse_loss.h"
#include "model/zoo/gpt2.h"
#include "schedule/registry.h"
#include "schedule/simulate.h"
#include "tools/bench/benchmarks.h"
#include "tools/bench/measure.h"

namespace penstock::tools {

namespace {

using Clock = std::chrono::steady_clock;
using schedule::Opcode;

constexpr int kMicroBatches = 8;
constexpr int kMeasuredSteps = 5;

struct Subject {
  const char* schedule;
  int ranks;
  int chunks;
  bool v = false;  // stages in a V
};

constexpr Subject kSubjects[] = {
    {"1f1b", 2, 1},
    {"1f1b", 4, 1},
    {"train", 4, 1},
    {"gpipe", 4, 1},
    {"zb_h1", 2, 1},
    {"zb_h1", 4, 1},
    {"interleaved_1f1b", 2, 2},
    {"zb1p", 4, 2},
    {"zbv", 4, 2, true},
    {"dualpipev", 2, 2, true},
};

// On two ranks, one core each.
constexpr Subject kGptSubjects[] = {
    {"1f1b", 2, 1}, {"zb_h1", 2, 1}, {"interleaved_1f1b", 2, 2}, {"zbv", 2, 2, true}};

// When a rank's passes ran in the last step. All ranks are threads, with one clock.
class PassClock final : public engine::Observer {
 public:
  void begin_stream(std::int64_t) override {
    busy = {};
    any_ = false;
  }
  void before(std::int64_t, const schedule::Instruction& instruction) override {
    if (!is_pass(instruction.opcode)) return;
    begin_ = Clock::now();
    if (!any_) first = begin_;
    any_ = true;
  }
  void after(std::int64_t, const schedule::Instruction& instruction) override {
    if (!is_pass(instruction.opcode)) return;
    last = Clock::now();
    busy += last - begin_;
  }

  Clock::time_point first, last;
  Clock::duration busy{};

 private:
  Clock::time_point begin_;
  bool any_ = false;
};

// What a pass of the sleeping model takes: unequal over stages and kinds.
Clock::duration pass_length(Opcode opcode, int stage, int chunks) {
  const double base = opcode == Opcode::kForwardPass     ? 20.0
                      : opcode == Opcode::kBackwardPass  ? 44.0
                      : opcode == Opcode::kBackwardInput ? 24.0
                                                         : 20.0;
  const double milliseconds = base * (1.0 + 0.15 * (stage % 3)) / chunks;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>(milliseconds));
}

struct Run {
  schedule::Costs costs;
  std::vector<double> makespans;           // by step
  std::vector<std::vector<double>> idles;  // by rank, then step
};

// Trains and measures: four steps for the costs, then those to compare with.
Run run(const Subject& subject, const model::Module& module, const std::string& config_text,
        const std::function<std::unique_ptr<model::DataSource>()>& data, bool sleeps) {
  Run result;
  std::vector<PassClock> clocks(static_cast<std::size_t>(subject.ranks));
  result.idles.resize(clocks.size());
  comm::run_local(subject.ranks, {}, [&](comm::World& world) {
    engine::Engine engine(world, module, engine::parse_config(config_text, "penstock-bench"),
                          data());
    const auto stream =
        schedule::make_schedule(subject.schedule, {.ranks = subject.ranks,
                                                   .micro_batches = kMicroBatches,
                                                   .chunks = subject.chunks,
                                                   .rank = schedule::PipeRank(world.rank())});
    if (sleeps) {
      for (const Opcode opcode : schedule::kAllOpcodes) {
        if (!is_pass(opcode)) continue;
        engine.replace_handler(opcode, [&](const schedule::Instruction& instruction,
                                           const auto& built_in) {
          const int stage = stream->stage_of(instruction.chunk).value;
          const auto until = Clock::now() + pass_length(instruction.opcode, stage, subject.chunks);
          built_in();
          std::this_thread::sleep_until(until);
        });
      }
    }
    engine.train_batch();  // first touches of memory
    engine::CostMeter meter;
    engine.add_observer(meter);
    for (int step = 0; step < 4; ++step) engine.train_batch();
    engine.remove_observer(meter);
    const auto no_replicas = world.all().split(world.rank(), 0);
    const schedule::Costs costs = gather_costs(meter, *stream, world.all(), *no_replicas);
    PassClock& clock = clocks[static_cast<std::size_t>(world.rank())];
    engine.add_observer(clock);
    for (int step = 0; step < kMeasuredSteps; ++step) {
      engine.train_batch();
      world.all().barrier().wait();
      if (world.rank() == 0) {
        const auto begin = std::ranges::min(clocks, {}, &PassClock::first).first;
        const auto end = std::ranges::max(clocks, {}, &PassClock::last).last;
        result.makespans.push_back(std::chrono::duration<double>(end - begin).count());
        for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
          result.idles[rank].push_back(
              std::chrono::duration<double>(end - begin - clocks[rank].busy).count());
        }
      }
      world.all().barrier().wait();
    }
    engine.remove_observer(clock);
    if (world.rank() == 0) result.costs = costs;
    no_replicas->close();
    engine.close();
  });
  return result;
}

void report(Table& table, const Subject& subject, const Run& measured) {
  const auto pipe = schedule::make_pipe(
      subject.schedule,
      {.ranks = subject.ranks, .micro_batches = kMicroBatches, .chunks = subject.chunks});
  const schedule::Timeline predicted = schedule::simulate(pipe, measured.costs);
  const double makespan = median(measured.makespans);
  double worst = 0.0;
  for (std::size_t rank = 0; rank < measured.idles.size(); ++rank) {
    worst = std::max(worst, std::abs(median(measured.idles[rank]) - predicted.ranks[rank].idle));
  }
  const auto percent = [&](double seconds) {
    return formatted("%.2f %%", 100.0 * seconds / predicted.makespan);
  };
  table.add({std::string(subject.schedule), std::to_string(subject.ranks),
             std::to_string(subject.chunks), formatted("%.1f", predicted.makespan * 1e3),
             formatted("%.1f", makespan * 1e3), percent(makespan - predicted.makespan),
             percent(worst), formatted("%.1f %%", 100.0 * predicted.bubble_ratio())});
}

std::string config_text(const Subject& subject, int rows) {
  return R"({"threads_per_rank": 1, "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
             "train_micro_batch_size_per_gpu": )" +
         std::to_string(rows) + R"(, "gradient_accumulation_steps": )" +
         std::to_string(kMicroBatches) + R"(, "pipeline": {"partition": "uniform", "stages": )" +
         std::to_string(subject.ranks) +
         (subject.chunks > 1 ? R"(, "chunks": )" + std::to_string(subject.chunks) : "") +
         (subject.v ? R"(, "stage_map": "v")" : "") + R"(, "schedule": ")" + subject.schedule +
         R"("}})";
}

Run run_sleeping(const Subject& subject) {
  constexpr std::int64_t kWidth = 16;
  model::Module module;
  for (int i = 0; i < subject.ranks * subject.chunks; ++i) {
    module.layers.push_back(model::layer<model::Linear>("Linear", kWidth, kWidth));
  }
  module.loss = std::make_shared<model::MseLoss>();
  const auto data = [&]() -> std::unique_ptr<model::DataSource> {
    const tensor::Context context(tensor::make_cpu_allocator());
    const std::vector<float> ones(kMicroBatches * kWidth, 1.0f);
    const auto all = tensor::Tensor::from<float>(context, {kMicroBatches, kWidth}, ones);
    return std::make_unique<model::RepeatingSource>(
        std::make_unique<model::InMemorySource>(std::vector{all}, std::vector{all}));
  };
  return run(subject, module, config_text(subject, 1), data, /*sleeps=*/true);
}

Run run_gpt(const Subject& subject) {
  constexpr std::int64_t kContext = 128, kRows = 8;
  const model::Gpt2Config gpt{
      .layers = 8, .heads = 4, .width = 256, .context = kContext, .vocabulary = 256};
  const auto data = [&]() -> std::unique_ptr<model::DataSource> {
    std::vector<std::uint8_t> text(static_cast<std::size_t>(kContext * kRows * kMicroBatches + 1));
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 251);
    return std::make_unique<model::RepeatingSource>(
        std::make_unique<model::TextSource>(std::move(text), kContext));
  };
  return run(subject, model::make_gpt2(gpt), config_text(subject, kRows), data, /*sleeps=*/false);
}

}  // namespace

void bench_prediction(const std::string& schedule) {
  const auto wanted = [&](const Subject& subject) {
    return schedule.empty() || schedule == subject.schedule;
  };
  std::vector<std::string> header = {"passes that sleep",
                                     "ranks",
                                     "chunks",
                                     "predicted, ms",
                                     "measured",
                                     "error",
                                     "worst idle error (target 5 %)",
                                     "bubble"};
  Table sleeping(header);
  for (const Subject& subject : kSubjects) {
    if (wanted(subject)) report(sleeping, subject, run_sleeping(subject));
  }
  sleeping.print();
  header.front() = "GPT, 8 layers";
  Table real(header);
  for (const Subject& subject : kGptSubjects) {
    if (wanted(subject)) report(real, subject, run_gpt(subject));
  }
  real.print();
}

}  // namespace penstock::tools
