// Which tensors make up a rank's state, and under which names a checkpoint holds them. Saving and
// loading both go by this one list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "engine/rank_state.h"
#include "engine/shards.h"

namespace penstock::engine {

struct StateTensor {
  std::string name;        // logical name of the weight that it is, or belongs to
  std::string state;       // of the optimizer's state: which, such as "exp_avg"; else empty
  std::int64_t layer = 0;  // the first that uses the weight
  const model::Parameter* parameter = nullptr;
  const model::Shard* shard = nullptr;  // what of it this rank has
  bool borrowed = false;                // the memory is an earlier stage's of this rank
  // Whether this rank, with its model group, gives it to a checkpoint: one that holds it does.
  bool given = false;
  // The replica whose range of a state it is, where they share it out (ZeRO); else -1.
  int replica = -1;
  std::int64_t begin = 0;  // of that range, among the elements that this rank's tensor of it has
  tensor::Tensor value;

  ShardData data() const { return {parameter->shape, *shard, value, begin}; }
  // "2.weight", "2.weight/exp_avg"
  std::string full_name() const { return stored_name(name); }
  // The same under another name of the weight.
  std::string stored_name(const std::string& weight) const {
    return state.empty() ? weight : weight + "/" + state;
  }
};

// Weights first. The tensors are the rank's own, not copies.
std::vector<StateTensor> state_tensors(RankState& rank);

// The files of this rank, from those tensors that it gives.
std::vector<checkpoint::FilePlan> plan_files(RankState& rank, bool exclude_frozen);

// Collective over the model group: the weights that this rank gives, whole; what several ranks of
// the group have parts of is put together on its first.
std::vector<checkpoint::NamedTensor> whole_weights(RankState& rank);

}  // namespace penstock::engine
