#include "engine/state_tensors.h"

#include <map>
#include <utility>

namespace penstock::engine {

std::vector<StateTensor> state_tensors(RankState& rank) {
  // A layer is given by one replica, in turn, so that all of them share the work; a tied weight
  // belongs to the layer that uses it first.
  const int replicas = rank.comms.data().size();
  const auto mine = [&](std::int64_t layer) {
    return layer % replicas == rank.comms.data().rank();
  };
  std::vector<StateTensor> tensors;
  for (const auto& stage : rank.stages) {
    for (const model::StageParameter& parameter : stage->parameters()) {
      tensors.push_back({.name = parameter.name,
                         .state = "",
                         .layer = parameter.first_layer,
                         .parameter = parameter.parameter,
                         .shard = &parameter.shard,
                         .borrowed = parameter.borrowed,
                         .given = stage->owns(parameter) && mine(parameter.first_layer),
                         .value = parameter.parameter->value});
    }
  }
  if (rank.updater == nullptr) return tensors;
  const bool shared_out = rank.gradients->flats().share().count > 1;
  for (const ParameterState& parameter : rank.updater->states()) {
    for (std::size_t i = 0; i < parameter.state.size(); ++i) {
      tensors.push_back({.name = parameter.name,
                         .state = parameter.state_names[i],
                         .layer = parameter.first_layer,
                         .parameter = parameter.parameter,
                         .shard = parameter.shard,
                         .given = parameter.owned && (shared_out || mine(parameter.first_layer)),
                         .replica = shared_out ? rank.comms.data().rank() : -1,
                         .begin = parameter.part.begin,
                         .value = parameter.state[i]});
    }
  }
  return tensors;
}

std::vector<checkpoint::FilePlan> plan_files(RankState& rank, bool exclude_frozen) {
  const int member = rank.comms.model().rank();
  std::map<std::string, checkpoint::FilePlan> files;
  for (const StateTensor& tensor : state_tensors(rank)) {
    if (!tensor.given || (exclude_frozen && !tensor.parameter->trainable)) continue;
    // What every rank of a model group has is stored by the first.
    if (tensor.shard->is_everything() && member != 0) continue;
    const auto layer = static_cast<int>(tensor.layer);
    const std::string file = tensor.state.empty()
                                 ? checkpoint::model_states_file(layer, member)
                                 : checkpoint::optim_states_file(layer, member, tensor.replica);
    for (checkpoint::Piece& piece : pieces_of(rank.host, tensor.full_name(), tensor.data())) {
      files[file].pieces.push_back(std::move(piece));
    }
  }
  std::vector<checkpoint::FilePlan> plans;
  for (auto& [name, plan] : files) {
    plan.file = name;
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<checkpoint::NamedTensor> whole_weights(RankState& rank) {
  comm::Communicator& group = rank.comms.model();
  std::vector<checkpoint::NamedTensor> weights;
  for (const StateTensor& tensor : state_tensors(rank)) {
    if (!tensor.given || !tensor.state.empty()) continue;
    const tensor::Tensor whole =
        tensor.shard->is_everything()
            ? tensor.value
            : gather_shards(rank.host, group, *tensor.parameter, tensor.value);
    if (group.rank() == 0) weights.emplace_back(tensor.name, whole);
  }
  return weights;
}

}  // namespace penstock::engine
