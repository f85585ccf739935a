// The command line of penstock-train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/log_filter.h"
#include "tools/train/data_choice.h"

namespace penstock::tools {

struct TrainOptions {
  std::string config;  // file
  std::string model;   // NAME[:key=value,…], or a folder
  DataChoice data;
  DataChoice eval_data;         // no files: no evaluation
  std::int64_t eval_every = 0;  // steps; 0: only after the last
  int eval_batches = 8;         // micro batches per replica
  std::optional<int> ranks;     // of this process; none: least_ranks()
  std::int64_t steps = 100;
  std::string run = "run";             // folder
  std::optional<std::string> resume;   // tag; empty: the latest
  bool fresh_optimizer = false;        // resume without the optimizer's states
  std::vector<std::string> overrides;  // path=value
  std::int64_t save_every = 0;         // steps; 0: only after the last
  std::int64_t trace_step = 0;         // 0: the last step
  std::string export_weights;          // folder; empty: no export
  bool plan = false;                   // print the memory plan instead of training
  bool verbose = false;
  tensor::LogFilter::Wanted log;  // of which stages and replicas; empty: of all
};

// Throws boost::program_options::error or UsageError for a wrong command line. Returns nothing
// after printing help.
std::optional<TrainOptions> parse_command_line(int argc, const char* const* argv);

}  // namespace penstock::tools
