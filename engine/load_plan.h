// Which tensors of stored weights a rank will read, and what does not fit: found before anything
// is read.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "engine/checkpoint_options.h"
#include "engine/state_tensors.h"

namespace penstock::engine {

// Where tensors come from: a checkpoint, or files of weights.
struct TensorSource {
  std::string what = {};                  // for messages
  bool casts = false;                     // read() converts between floating dtypes
  std::vector<std::string> weights = {};  // all that it holds
  // Null when there is none of this name.
  std::function<const checkpoint::TensorInfo*(const std::string& name)> find = nullptr;
  std::function<void(const std::string& name, const checkpoint::Region& region,
                     const tensor::Tensor& destination)>
      read = nullptr;
};

// What one rank does with a source.
struct LoadPlan {
  struct Item {
    StateTensor tensor;
    std::string stored;  // its name in the source
  };
  std::vector<Item> found;
  std::vector<Item> missing;
  std::set<std::string> wanted;  // names of weights that it looked for in the source
};

// Throws FileError for a tensor of another shape or dtype.
LoadPlan make_load_plan(std::vector<StateTensor> tensors, const TensorSource& source,
                        const StoredNames& names);

// Collective: what all ranks together do not find, and leave in the source.
LoadModuleResult misfits(comm::World& world, const LoadPlan& plan, const TensorSource& source);

// Throws FileError for what this rank does not find, then for what is left. `advice` ends the
// message.
void require_fit(const LoadPlan& plan, const LoadModuleResult& left, const TensorSource& source,
                 const std::string& advice);

// Reads what was found.
void read_tensors(const tensor::Context& context, const LoadPlan& plan, const TensorSource& source);

}  // namespace penstock::engine
