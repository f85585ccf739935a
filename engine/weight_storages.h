// Which storages are weights: pipe buffers refer to them, and do not hold them.
#pragma once

#include <memory>
#include <span>
#include <unordered_set>

#include "model/stage.h"

namespace penstock::engine {

using StorageSet = std::unordered_set<const tensor::Storage*>;

// Of a stage's weights and, as far as there are any now, of their gradients.
void add_weight_storages(model::Stage& stage, StorageSet& storages);
StorageSet weight_storages(std::span<const std::unique_ptr<model::Stage>> stages);

}  // namespace penstock::engine
