// penstock-ckpt: lists, shows, verifies and compares checkpoints.
#include <array>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>

#include "tools/ckpt/commands.h"

namespace penstock::tools {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Words&);
};

constexpr std::array kCommands = {
    Command{"list", "the checkpoints of a directory: step, samples, size, which is latest", list},
    Command{"show", "what one holds: counters, and each tensor with its file", show},
    Command{"verify", "read one whole and check everything", verify},
    Command{"diff", "how two differ, tensor by tensor", diff},
};

void print_help() {
  std::cout << "Usage: penstock-ckpt COMMAND ...\n"
               "\n"
               "Looks at the checkpoints that Penstock saves; changes nothing.\n"
               "\n";
  for (const Command& command : kCommands) {
    std::cout << "  " << std::left << std::setw(8) << command.name << command.summary << '\n';
  }
  std::cout << "\n`penstock-ckpt COMMAND --help` has the options of each.\n"
               "Exit status: 0; 1 if something is damaged, or differs; 2 if the command line is\n"
               "wrong, or there is nothing to look at.\n"
               "\n"
               "Examples:\n"
               "  penstock-ckpt list run/checkpoints\n"
               "  penstock-ckpt show run/checkpoints global_step100\n"
               "  penstock-ckpt verify run/checkpoints\n"
               "  penstock-ckpt diff run/checkpoints/global_step100 other/checkpoints\n";
}

int run(const Words& words) {
  const std::string expected = "expected list, show, verify or diff";
  if (words.empty()) throw std::invalid_argument("a command is missing; " + expected);
  if (words.front() == "--help" || words.front() == "help") {
    print_help();
    return kGood;
  }
  for (const Command& command : kCommands) {
    if (words.front() == command.name) return command.run({words.begin() + 1, words.end()});
  }
  throw std::invalid_argument("there is no command \"" + words.front() + "\"; " + expected);
}

}  // namespace
}  // namespace penstock::tools

int main(int argc, char** argv) {
  using namespace penstock::tools;
  try {
    const int status = run({argv + 1, argv + argc});
    if (!std::cout.flush()) throw std::runtime_error("the output could not be written");
    return status;
  } catch (const std::exception& error) {
    std::cerr << "penstock-ckpt: " << error.what() << "\nTry `penstock-ckpt --help`.\n";
    return kCannotLook;
  }
}
