// AlexNet as DeepSpeed's pipeline tutorial has it: small enough for CIFAR-10's images.
#pragma once

#include <cstdint>

#include "model/module.h"

namespace penstock::model {

struct AlexNetConfig {
  std::int64_t num_classes = 10;

  bool operator==(const AlexNetConfig&) const = default;
};

// Five convolutions (3→64→192→384→256→256 channels) with ReLU, three of them followed by max
// pooling, and one linear layer; images are [rows, 3, 32, 32], labels [rows]. Each layer of the
// network is one of the 15 of the module, so that a pipeline can be cut between any two; cut by
// parameters it is 0, 8, 15 on two stages and 0, 6, 8, 10, 15 on four. The loss is the
// cross-entropy. (The larger AlexNet for 224×224 images, with three linear layers, is another
// model.) Throws InvalidArgument for num_classes < 1.
Module make_alexnet(const AlexNetConfig& config);

}  // namespace penstock::model
