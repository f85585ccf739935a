// What a run changes that goes on from a checkpoint, for a warning: it may be wanted, or a slip.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::engine {

// The settings that decide what is learned and differ between two configurations, given as
// Config::canonical_text: "optimizer.params.lr was 0.01, is 0.02". Settings that any run may change
// without changing its results, such as pipeline.stages, are left out, and so are the batch sizes
// and the seed, which the engine knows better.
std::vector<std::string> changed_settings(std::string_view saved, std::string_view current);

}  // namespace penstock::engine
