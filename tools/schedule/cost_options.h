// What passes and transfers cost, from options or from a file.
#pragma once

#include <string>

#include "schedule/costs.h"
#include "schedule/stage_map.h"
#include "tools/schedule/command_line.h"

namespace penstock::tools {

struct CostOptions {
  // Adds --costs, --forward, --backward-input, --backward-weight and the rest.
  explicit CostOptions(CommandLine& line);

  // std::invalid_argument when a file and its options are both given.
  schedule::Costs costs_for(const schedule::StageMap& map) const;

 private:
  const CommandLine* line_;
  std::string file_;
  schedule::StageCosts rank_;  // of all stages of a rank together
  schedule::Costs rest_;
};

}  // namespace penstock::tools
