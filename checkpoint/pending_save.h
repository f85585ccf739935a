// PendingSave: a save that goes on beside the training, written by a thread of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"

namespace penstock::checkpoint {

// Goes through two phases: every rank writes its files; then rank 0 makes them a checkpoint. Each
// ends when ready() is true on every rank, which the ranks have to find out together, and advance()
// is called. The thread works with files and memory alone and never communicates. All calls are
// made by the rank's thread.
//
//   PendingSave save(world, std::move(request));
//   ...                                    // later, at a point that all ranks reach:
//   if (save.ready() on all ranks) result = save.advance();
class PendingSave {
 public:
  // Collective: agrees on the request as save() does, then begins to write. The elements of the
  // request's tensors must not change as long as this object lives. Throws FileError, the same on
  // every rank.
  PendingSave(comm::World& world, SaveRequest request,
              FileSystem& file_system = posix_file_system());
  // Gives up what is not committed: waits until the file that is being written is, and leaves the
  // temporary directory, which the next save of the tag removes. If rank 0 is committing, that is
  // waited for, and the checkpoint is complete.
  ~PendingSave();
  PendingSave(const PendingSave&) = delete;
  PendingSave& operator=(const PendingSave&) = delete;

  const std::string& tag() const;
  // Local: whether this rank has done its part of the phase, well or not.
  bool ready() const noexcept;
  // Collective, when all ranks are ready. Returns the result once the checkpoint is committed.
  // Throws FileError, the same on every rank, if any could not do its part; the save is over then.
  std::optional<SaveResult> advance();
  // Collective: all that is left, waiting for the slowest rank. Throws as advance().
  SaveResult finish();

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace penstock::checkpoint
