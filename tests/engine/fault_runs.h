// The runs of fault_program, for the test that looks at what they leave.
#pragma once

#include "tests/engine/fixtures.h"

namespace penstock::testing {

// Killed while it saves: two stages, two replicas.
inline const RunSpec kSaveRun{.pipe = 2,
                              .data = 2,
                              .micro = 2,
                              .gas = 2,
                              .optimizer = R"({"type": "AdamW", "params": {"lr": 0.01}})"};
// Its loss throws at micro batch 3.
inline const RunSpec kLossRun{.pipe = 4, .gas = 6};

}  // namespace penstock::testing
