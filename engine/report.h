// Texts that the engine writes to the log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/batch_config.h"
#include "engine/engine.h"
#include "engine/rank_state.h"

namespace penstock::engine {

// Grid, batch triple, and per stage its layers and parameters; the same text on every rank.
// Collective over the world. `schedule`: the name of the training stream's.
std::string startup_report_text(RankState& rank, const BatchTriple& batch,
                                std::string_view schedule);

// A number by a format of printf, of at most 63 characters.
std::string formatted(const char* format, double value);

// What a progress line is made of beside the step's result.
struct Progress {
  double samples_per_second = 0.0;       // since the last line; 0: not known yet
  double mean_samples_per_second = 0.0;  // over the run
  std::int64_t tokens_per_sample = 0;    // 0: not tokens
  double seconds_left = 0.0;             // 0: unknown
};

// "step 10: loss 2.3026, lr 0.001, norm 1.25, 812.3 samples/s (810.9), 103974 tokens/s, 0:01:35
// left"
std::string progress_text(const TrainResult& result, const Progress& progress);

// "memory (MiB): 20.50 now (parameters 4.10, gradients 4.10, optimizer state 8.20, other 4.10),
// 31.25 at most"
std::string memory_text(RankState& rank);

// The configuration as it is, and each layer with its stage and that stage's rank.
std::string state_dump(const RankState& rank, const Config& config);

// "the gradients of step 7 are not finite, first in layer 3"; of a step that was skipped.
std::string not_finite_text(std::int64_t step, const UpdateResult& update);

}  // namespace penstock::engine
