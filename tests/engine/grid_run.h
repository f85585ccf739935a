// Runs a function on every rank of a grid, each with its own Engine, and collects what it returns.
#pragma once

#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/engine.h"
#include "tests/support/timeout.h"

namespace penstock::testing {

// Ranks as threads. The results are by rank. Rethrows the first exception.
template <class Result>
std::vector<Result> on_ranks(int ranks, const std::function<Result(comm::World&)>& run) {
  // Not a vector: the elements of one of bools are not apart in memory.
  std::deque<Result> results(static_cast<std::size_t>(ranks));
  comm::run_local(ranks, {.timeout_seconds = kTimeoutSeconds}, [&](comm::World& world) {
    results[static_cast<std::size_t>(world.rank())] = run(world);
  });
  return {std::make_move_iterator(results.begin()), std::make_move_iterator(results.end())};
}

// The elements of a tensor of any floating dtype and device.
std::vector<float> floats_of(const tensor::Tensor& tensor);
// What this rank has of a parameter, by logical name; empty when it does not own it.
std::vector<float> values_of(engine::Engine& engine, const std::string& name);
// The number, in the whole parameter, of each element that this rank has.
std::vector<std::size_t> elements_of(const model::StageParameter& parameter);
// Gives this rank its part of the whole parameter's values.
void set_values(engine::Engine& engine, const std::string& name, std::span<const float> values);

}  // namespace penstock::testing
