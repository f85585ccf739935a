// penstock-schedule: shows what each rank of a pipe does, step by step.
#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "schedule/grid.h"
#include "schedule/registry.h"
#include "schedule/text.h"

namespace penstock::tools {
namespace {

namespace po = boost::program_options;
using schedule::Schedule;

constexpr int kUsageError = 2;
constexpr std::int64_t kMostCells = 10'000'000;  // more than anyone looks at, and still in memory

constexpr const char* kUsage =
    "Usage: penstock-schedule list\n"
    "       penstock-schedule show NAME [options]\n"
    "\n"
    "Shows what each rank of a pipeline does in one batch, step by step.\n"
    "\n"
    "  list         the schedules there are, and what each one requires\n"
    "  show NAME    the time grid of all ranks: a row per rank, a column per step\n"
    "\n";

constexpr const char* kExamples =
    "\n"
    "Examples:\n"
    "  penstock-schedule show 1f1b --ranks 4 --micro-batches 8\n"
    "  penstock-schedule show 1f1b --ranks 8 --micro-batches 64 | less -S\n"
    "  penstock-schedule show inference --ranks 3 --text --rank 1\n";

struct ShowOptions {
  std::string name;
  schedule::ScheduleArgs args{.ranks = 4, .micro_batches = 8};
  std::optional<int> rank;
  bool text = false;
};

// The options that --help explains; the name is positional.
po::options_description describe(ShowOptions& options) {
  const auto number = [](int& target, const char* letter) {
    return po::value(&target)->value_name(letter)->default_value(target);
  };
  po::options_description described("Options of show");
  auto add = described.add_options();
  add("ranks", number(options.args.ranks, "P"), "ranks along the pipe (config: pipeline.stages)");
  add("micro-batches", number(options.args.micro_batches, "M"),
      "micro batches of a batch (config: gradient_accumulation_steps)");
  add("chunks", number(options.args.chunks, "V"), "stages of each rank (config: pipeline.chunks)");
  add("rank", po::value<int>()->value_name("R")->notifier([&](int r) { options.rank = r; }),
      "only this rank, counted from 0");
  add("text", po::bool_switch(&options.text),
      "every instruction, as text that the library reads back, in place of the grid");
  add("help", "this text");
  return described;
}

void print_help(std::ostream& out) {
  ShowOptions defaults;
  out << kUsage << describe(defaults) << kExamples;
}

// Throws po::error for what cannot be read; nothing if help is asked for.
std::optional<ShowOptions> parse_show(const std::vector<std::string>& arguments) {
  ShowOptions options;
  po::options_description all = describe(options);
  all.add_options()("name", po::value(&options.name));
  po::positional_options_description positional;
  positional.add("name", 1);

  po::variables_map values;
  po::store(
      po::command_line_parser(arguments)
          .options(all)
          .positional(positional)
          .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
          .run(),
      values);
  if (values.contains("help")) return std::nullopt;
  po::notify(values);
  if (!values.contains("name")) {
    throw std::invalid_argument("show needs the NAME of a schedule; `list` prints them");
  }
  return options;
}

std::string pipe_buffers(const Schedule& schedule) {
  std::string out;
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    if (chunk > 0) out += '+';
    out += std::to_string(schedule.num_pipe_buffers(schedule::ChunkId{chunk}));
  }
  return out;
}

void print_grid(std::span<const std::unique_ptr<Schedule>> pipe) {
  const Schedule& first = *pipe.front();
  std::cout << first.name() << ": pipeline.stages " << first.num_ranks()
            << ", gradient_accumulation_steps " << first.num_micro_batches() << ", "
            << first.num_steps() << " steps\n\n"
            << schedule::to_grid(pipe) << "\npipe buffers of each rank:";
  for (const auto& schedule : pipe) std::cout << ' ' << pipe_buffers(*schedule);
  std::cout << "\nF forward, B backward (I its input part, W its weight part), O optimizer step, "
               ". no computation\n";
}

void check_size(const ShowOptions& options) {
  const std::int64_t ranks = options.rank ? 1 : options.args.ranks;
  const std::int64_t micro_batches = options.args.micro_batches;
  if (ranks < 1 || micro_batches <= kMostCells / ranks) return;
  throw std::invalid_argument("ranks × micro batches to show are more than " +
                              std::to_string(kMostCells) +
                              "; show one --rank, or fewer micro batches");
}

void show(const ShowOptions& options) {
  check_size(options);
  std::vector<std::unique_ptr<Schedule>> pipe;
  if (options.rank) {
    schedule::ScheduleArgs args = options.args;
    args.rank = schedule::PipeRank{*options.rank};
    pipe.push_back(schedule::make_schedule(options.name, args));
  } else {
    pipe = schedule::make_pipe(options.name, options.args);
  }
  if (!options.text) return print_grid(pipe);
  // One rank alone is printed without a heading, so that the output can be read back.
  for (const auto& schedule : pipe) {
    if (!options.rank) std::cout << "rank " << schedule->rank().value << '\n';
    std::cout << schedule::to_text(*schedule);
    if (schedule != pipe.back()) std::cout << '\n';
  }
}

void list() {
  for (const schedule::ScheduleInfo& info : schedule::registered_schedules()) {
    std::cout << std::left << std::setw(16) << info.name
              << (info.trains ? "training: " : "evaluation: ") << info.summary << '\n'
              << std::setw(16) << ""
              << "requires " << info.constraints << '\n';
  }
}

void run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    throw std::invalid_argument("a command is missing; expected list or show");
  }
  const std::string& command = arguments.front();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (command == "--help" || command == "help") {
    print_help(std::cout);
  } else if (command == "list") {
    if (!rest.empty()) throw std::invalid_argument("list takes no arguments");
    list();
  } else if (command == "show") {
    const std::optional<ShowOptions> options = parse_show(rest);
    options ? show(*options) : print_help(std::cout);
  } else {
    throw std::invalid_argument("there is no command \"" + command + "\"; expected list or show");
  }
  if (!std::cout.flush()) throw std::runtime_error("the output could not be written");
}

}  // namespace
}  // namespace penstock::tools

int main(int argc, char** argv) {
  try {
    penstock::tools::run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "penstock-schedule: " << error.what() << "\nTry `penstock-schedule --help`.\n";
    return penstock::tools::kUsageError;
  }
}
