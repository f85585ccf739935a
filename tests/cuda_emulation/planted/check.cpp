// check --wanted TEXT SCENARIO: runs a scenario under one seed after the other until what is found
// wrong has the text in it; exits with 0 when it was. check SCENARIO…: nothing may be found.
//
// The program is linked with a copy of the library in which a fault was planted, or with the
// library as it is.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/cuda_emulation/emulation.h"
#include "tests/cuda_emulation/planted/scenario.h"

namespace penstock::cuda_emulation::planted {

namespace {

Scenario scenario_of(const std::string& name) {
  for (const auto& table : {memory_scenarios(), rank_scenarios()}) {
    const auto found = std::ranges::find(table, name, &Scenario::name);
    if (found != table.end()) return *found;
  }
  return operation(name);
}

// All that is found under a seed.
std::string find_faults(const Scenario& scenario, const Run& run) {
  std::string found;
  try {
    found = scenario.run(run);
  } catch (const std::exception& error) {
    found = std::string(error.what()) + "\n";
  }
  found += fault();
  if (found.empty()) {
    for (const std::string& left : leftovers()) found += "left: " + left + "\n";
  }
  discard();
  return found;
}

int expect_fault(const Scenario& scenario, const std::string& text) {
  constexpr std::uint64_t kSeeds = 20;
  std::string last;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::string found =
        find_faults(scenario, {.seed = seed, .patience = std::chrono::milliseconds(3000)});
    if (found.find(text) != std::string::npos) {
      std::printf("%s, seed %d: %s\n", scenario.name.c_str(), static_cast<int>(seed),
                  found.c_str());
      return 0;
    }
    if (!found.empty()) last = found;
  }
  std::printf("%s: \"%s\" was found under no seed; what was found last: \"%s\"\n",
              scenario.name.c_str(), text.c_str(), last.c_str());
  return 1;
}

int expect_none(const std::vector<std::string>& names) {
  int wrong = 0;
  for (const std::string& name : names) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const std::string found = find_faults(
          scenario_of(name), {.seed = seed, .patience = std::chrono::milliseconds(60'000)});
      if (found.empty()) continue;
      std::printf("%s, seed %d: %s\n", name.c_str(), static_cast<int>(seed), found.c_str());
      ++wrong;
    }
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

}  // namespace penstock::cuda_emulation::planted

int main(int argc, char** argv) {
  using namespace penstock::cuda_emulation::planted;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "--wanted") {
    return expect_fault(scenario_of(arguments[2]), arguments[1]);
  }
  return expect_none(arguments);
}
