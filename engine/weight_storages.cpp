#include "engine/weight_storages.h"

namespace penstock::engine {

void add_weight_storages(model::Stage& stage, StorageSet& storages) {
  for (const model::StageParameter& parameter : stage.parameters()) {
    storages.insert(parameter.parameter->value.storage().get());
  }
  for (const tensor::GradSlot& slot : stage.slots()) {
    if (slot.grad.defined()) storages.insert(slot.grad.storage().get());
  }
}

StorageSet weight_storages(std::span<const std::unique_ptr<model::Stage>> stages) {
  StorageSet storages;
  for (const auto& stage : stages) add_weight_storages(*stage, storages);
  return storages;
}

}  // namespace penstock::engine
