// Checks a layer's gradients against finite differences in double.
#pragma once

#include <vector>

#include "model/module.h"

namespace penstock::model {

struct LayerCheck {
  bool training = true;
  double step = 1e-5;
  double tolerance = 1e-7;  // |tape − difference| ≤ tolerance · max(1, |difference|)
};

// Builds the layer as a stage in double and asserts, for L = Σ r·output with fixed r:
//  - the gradients of all weights and of all f64 inputs equal central differences;
//  - I then W gives the same bits as B;
//  - on the meta device the outputs have the same shapes.
void check_layer(const LayerSpec& spec, const std::vector<Tensor>& inputs,
                 const LayerCheck& options = {});

}  // namespace penstock::model
