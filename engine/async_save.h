// AsyncSave: the engine's side of a save that goes on beside the training.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/pending_save.h"
#include "comm/world.h"
#include "tensor/tensor.h"

namespace penstock::engine {

class AsyncSave {
 public:
  bool under_way() const { return pending_ != nullptr; }
  // Of the save that is under way.
  const std::string& tag() const { return pending_->tag(); }
  // Local: no save is under way, or it can go on as far as this rank is concerned.
  bool ready() const { return pending_ == nullptr || pending_->ready(); }

  // Copies the elements of the request's tensors and lets the request hold the copies. Their memory
  // is kept for the next time, since memory that is new costs more than the copy. No save may be
  // under way.
  void copy_into_own_memory(checkpoint::SaveRequest& request);
  // Collective. Throws FileError, the same on every rank.
  void begin(comm::World& world, checkpoint::SaveRequest request);
  // Collective; PendingSave's. A save that throws FileError is over.
  std::optional<checkpoint::SaveResult> advance();
  checkpoint::SaveResult finish();

 private:
  tensor::Tensor memory_;                             // of the copies
  std::unique_ptr<checkpoint::PendingSave> pending_;  // after memory_, so that it dies first
};

}  // namespace penstock::engine
