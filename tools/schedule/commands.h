// The commands of penstock-schedule. Each takes the words after its name and returns the exit
// status; exceptions are told by main.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::tools {

inline constexpr int kGood = 0;
inline constexpr int kBadSchedule = 1;
inline constexpr int kUsageError = 2;

// The schedule is bad, not the command line: ends with kBadSchedule.
class BadSchedule : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Words = std::vector<std::string>;

int list_schedules(const Words& words);
int show(const Words& words);
int verify_schedule(const Words& words);
int simulate_schedule(const Words& words);
int draw(const Words& words);
int compare(const Words& words);
int search_schedule(const Words& words);
int convert(const Words& words);

}  // namespace penstock::tools
