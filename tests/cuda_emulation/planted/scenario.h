// Uses of the library on emulated devices that a fault planted in its sources has to spoil.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::cuda_emulation::planted {

struct Run {
  std::uint64_t seed = 0;
  std::chrono::milliseconds patience{0};  // of ranks and devices that wait for each other
};

// What was wrong with results; nothing: empty. What the emulation finds is thrown or its fault().
struct Scenario {
  std::string name;
  std::function<std::string(const Run&)> run;
};

// An operation of the tables in tests/tensor/cuda: its results are the CPU's.
Scenario operation(const std::string& name);
std::vector<Scenario> memory_scenarios();
std::vector<Scenario> rank_scenarios();

}  // namespace penstock::cuda_emulation::planted
