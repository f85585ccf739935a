// How worlds fail, written once for ranks as threads and as processes.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/world.h"

namespace penstock::comm::testing {

// Each rank runs the scenario on a world that nothing else uses, since it is dead afterwards. It
// throws Surprise when what happens to this rank is not what must.
struct Scenario {
  std::string name;
  double timeout_seconds;
  std::function<void(World&)> run;
};

class Surprise : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

const std::vector<Scenario>& scenarios();

}  // namespace penstock::comm::testing
