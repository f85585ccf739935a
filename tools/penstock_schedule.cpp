// penstock-schedule: lists, shows, proves, simulates, draws, compares, finds and converts
// schedules.
#include <array>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>

#include "tools/schedule/commands.h"

namespace penstock::tools {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Words&);
};

constexpr std::array kCommands = {
    Command{"list", "the schedules there are, and what each one requires", list_schedules},
    Command{"show", "the time grid of all ranks, or the instructions as text", show},
    Command{"verify", "prove that the streams are safe", verify_schedule},
    Command{"simulate", "time, idle time, memory and messages for given costs", simulate_schedule},
    Command{"draw", "an SVG picture, or an HTML page of several", draw},
    Command{"compare", "a table of all schedules for given sizes and costs", compare},
    Command{"search", "the best order for given costs and memory", search_schedule},
    Command{"convert", "PyTorch's CSV tables and text, in and out", convert},
};

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock-schedule show 1f1b --ranks 4 --micro-batches 8\n"
    "  penstock-schedule show 1f1b --ranks 8 --micro-batches 64 | less -S\n"
    "  penstock-schedule show inference --ranks 3 --text --rank 1\n"
    "  penstock-schedule compare --ranks 8 --micro-batches 32 --chunks 2 --latency 0.1\n"
    "  penstock-schedule draw 1f1b zb_h1 zbv --out schedules.html\n"
    "  penstock-schedule verify file:mine.csv\n";

void print_help() {
  std::cout << "Usage: penstock-schedule COMMAND ...\n"
               "\n"
               "What each rank of a pipeline does in one batch.\n"
               "\n";
  for (const Command& command : kCommands) {
    std::cout << "  " << std::left << std::setw(10) << command.name << command.summary << '\n';
  }
  std::cout << "\n`penstock-schedule COMMAND --help` has the options of each.\n"
               "Exit status: 0; 1 if the schedule is bad; 2 if the command line is, or a file.\n"
               "\n"
            << kExamples;
}

std::string names() {
  std::string out;
  for (const Command& command : kCommands) {
    if (!out.empty()) out += &command == &kCommands.back() ? " or " : ", ";
    out += command.name;
  }
  return out;
}

int run(const Words& words) {
  if (words.empty()) throw std::invalid_argument("a command is missing; expected " + names());
  if (words.front() == "--help" || words.front() == "help") {
    print_help();
    return kGood;
  }
  for (const Command& command : kCommands) {
    if (words.front() == command.name) return command.run({words.begin() + 1, words.end()});
  }
  throw std::invalid_argument("there is no command \"" + words.front() + "\"; expected " + names());
}

}  // namespace
}  // namespace penstock::tools

int main(int argc, char** argv) {
  using namespace penstock::tools;
  try {
    const int status = run({argv + 1, argv + argc});
    if (!std::cout.flush()) throw std::runtime_error("the output could not be written");
    return status;
  } catch (const BadSchedule& error) {
    std::cerr << "penstock-schedule: " << error.what() << '\n';
    return kBadSchedule;
  } catch (const std::exception& error) {
    std::cerr << "penstock-schedule: " << error.what() << "\nTry `penstock-schedule --help`.\n";
    return kUsageError;
  }
}
