// Where the weights and gradients of a stage lie in their allocations. Internal to model/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/stage.h"

namespace penstock::model {

// All numbers are elements. A trained weight lies at the same place among weights as its first
// gradient does among gradients, as seen from the beginning of their piece (FlatWeights), so that
// one range of a piece is the same weights and gradients.
struct StageLayout {
  struct Piece {
    std::vector<FlatWeights::Member> members;
    std::int64_t weights = 0, grads = 0;  // where it begins
    std::int64_t elements = 0;            // a multiple of the shares
    std::int64_t partial = 0;             // where, from its beginning, partial gradients begin
    bool tied = false;
  };

  std::vector<std::int64_t> weights;  // by parameter; of a borrowed one nothing
  // By slot: untied ones in one allocation, tied ones in another.
  std::vector<std::int64_t> grads;
  std::vector<Piece> pieces;
  std::int64_t weight_elements = 0, untied_grads = 0, tied_grads = 0;
};

StageLayout lay_out(std::span<const StageParameter> parameters, std::span<const StageSlot> slots,
                    const StageOptions& options);

}  // namespace penstock::model
