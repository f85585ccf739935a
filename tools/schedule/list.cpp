#include <iomanip>
#include <iostream>

#include "schedule/registry.h"
#include "tools/schedule/command_line.h"

namespace penstock::tools {

int list_schedules(const Words& words) {
  CommandLine line("list", "The schedules there are, and what each one requires.");
  if (!line.parse(words)) return kGood;
  for (const schedule::ScheduleInfo& info : schedule::registered_schedules()) {
    std::cout << std::left << std::setw(17) << info.name << ' '
              << (info.trains ? "training: " : "evaluation: ") << info.summary << '\n';
    if (info.constraints.empty()) continue;
    std::cout << std::setw(17) << ""
              << " requires " << info.constraints << '\n';
  }
  return kGood;
}

}  // namespace penstock::tools
